/* Control messages of peers: any bytes give a message or an error. Sealed frames are sealed here, so that their bodies
 * are reached. */
#include "base/check.h"
#include "transfer/peer/pwire.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n)
{
    static struct pwire_msg m, again;
    static unsigned char    frame[PWIRE_FRAME_MAX];
    struct pwire_seal       none = { 0 }, a = { .on = true }, b = { .on = true }, c = { .on = true };
    uint32_t                used = 0;
    if (n > PWIRE_FRAME_MAX) return 0;
    (void)pwire_get(p, (uint32_t)n, &none, &m, &used);
    (void)pwire_get(p, (uint32_t)n, &c, &m, &used);
    if (pwire_get_body(p, (uint32_t)n, &m)) { /* what was understood is written and understood again */
        struct pwire_seal *out = m.type == PWIRE_HELLO || m.type == PWIRE_CHALLENGE ? &none : &a;
        struct pwire_seal *in = out == &none ? &none : &b;
        uint32_t           bytes = pwire_put(frame, &m, out);
        CHECK(pwire_get(frame, bytes, in, &again, &used) == ST_OK);
        CHECK(used == bytes && again.type == m.type);
        CHECK(m.type == PWIRE_RELEASE || m.type == PWIRE_CLAIM || m.n <= PWIRE_KEYS_MAX);
    }
    return 0;
}
