/* devices: `spillway --list-devices`: lists the devices of this machine that a server can use.   Thread: main. */
#pragma once

/* Prints a line for each device. Returns an exit code. */
int devices_main(void);
