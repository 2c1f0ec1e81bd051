/* cuda_runtime: the device side of CUDA on the CPU.   C++17. */
#pragma once
#include <cuda_runtime_api.h>
#include <emu.h>
#include <emu_kernel.h>
#include <emu_math.h>
#include <emu_types.h>
