/* tune: `spillway tune`: gives the matrices of a model, or of a well-known shape, to dev_tune.   Thread: main. */
#pragma once

/* argv[0] is "tune". Returns an exit code. */
int tune_main(int argc, char **argv);
