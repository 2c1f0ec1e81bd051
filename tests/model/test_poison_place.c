/* As test_poison, with blocks that the device reads where the host keeps them; what is free there is not a number
 * either. */
#define TIERS_POISON   1
#define TIERS_IN_PLACE 1
#define TIERS_REQUESTS 500
#include "test_tiers.c"
