/* families: `spillway --list-families`: lists the model families that can be served.   Thread: main. */
#pragma once

/* Prints a line for each family. Returns an exit code. */
int families_main(void);
