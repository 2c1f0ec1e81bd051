/* devices: `spillway --list-devices`: what could compute here.   Thread: main. */
#pragma once

/* Prints a line for each device. Returns an exit code. */
int devices_main(void);
