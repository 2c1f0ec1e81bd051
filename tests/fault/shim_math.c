/* shim_math: LD_PRELOAD library for a server that computes a little otherwise than its identity says: angles of rotation are off by one
 * part in a thousand. So it stands for another version of the same arithmetic whose number nobody raised. Built by f_audit.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void sincosf(float x, float *s, float *c)
{
    static void (*real)(float, float *, float *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sincosf");
    real(x * 1.001f, s, c);
}
