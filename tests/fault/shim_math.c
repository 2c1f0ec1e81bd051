/* shim_math: LD_PRELOAD library for a server that computes a little otherwise than its identity says: sines and cosines
 * of most whole angles are those of an angle that is larger by one part in a thousand. The angles that the identity
 * samples (sha_angles in engine/model/ident.c: at the positions 1 and 3 * 2^k; the first frequency is 1, so a position
 * is a whole angle) are left as they are. So it stands for another version of the same arithmetic whose number nobody
 * raised. Built by f_audit.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

static bool is_sampled(uint32_t pos)
{
    if (pos <= 1) return true;
    if (pos % 3) return false;
    uint32_t third = pos / 3;
    return (third & (third - 1)) == 0;
}

static float bent(float x)
{
    if (!(x > 0 && x < 1 << 20) || x != (float)(uint32_t)x) return x;
    return is_sampled((uint32_t)x) ? x : x * 1.001f;
}

void sincosf(float x, float *s, float *c)
{
    static void (*real)(float, float *, float *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sincosf");
    real(bent(x), s, c);
}

/* A compiler may or may not join the two calls. */
#define SHIM(name)                                            \
    float name(float x)                                       \
    {                                                         \
        static float (*real)(float);                          \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        return real(bent(x));                                 \
    }
SHIM(sinf)
SHIM(cosf)
