/* cuda_bf16: the 16-bit floats of the emulator.   C++17. */
#pragma once
#include <emu_types.h>
