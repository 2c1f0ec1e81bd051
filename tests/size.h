/* size: how much a test does, a slice or all of it. Included by test.h. */
#pragma once
#include <stdlib.h>
#include <string.h>

/* How much a test does. TESTS_FULL=1 asks for `full`: a whole ./check sets it for the unit tests of the plain build, and
 * ./check all everywhere. Otherwise a test does `slice`, which is large enough to fail for every reason for which
 * `full` can. */
static inline int test_size(int full, int slice)
{
    const char *asked = getenv("TESTS_FULL");
    return asked && !strcmp(asked, "1") ? full : slice;
}
