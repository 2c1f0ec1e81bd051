/* What a peer on this machine says of its memory is believed only where that memory is found, and cannot shrink. */
#include "test.h"
#include "transfer/peer/near.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 3 * 4096, PID = 8, FD = 16, INODE = 32, LENGTH = 40 }; /* places in what near_say writes */

static int make(bool sealed)
{
    int fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(pwrite(fd, "block", 5, 8192), 5);
    if (sealed) assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static void memory_of_a_peer_is_read_where_it_lies(void **state)
{
    (void)state;
    unsigned char        said[NEAR_BYTES];
    const unsigned char *p;
    int                  fd = make(true);
    assert_int_equal(near_say(fd, said), ST_OK);
    assert_int_equal(near_map(said, BYTES, &p), ST_OK);
    assert_memory_equal(p + 8192, "block", 5);
    assert_int_equal(pwrite(fd, "other", 5, 8192), 5);
    assert_memory_equal(p + 8192, "other", 5); /* it is the memory itself, not a copy */
    close(fd);
    assert_memory_equal(p + 8192, "other", 5); /* and stays while it is mapped */
    near_unmap(p, BYTES);
    near_unmap(NULL, 0);
    assert_int_equal(near_say(-1, said), ST_IO);
}

static void memory_that_could_become_shorter_is_not_mapped(void **state)
{
    (void)state;
    unsigned char        said[NEAR_BYTES];
    const unsigned char *p;
    int                  fd = make(false);
    assert_int_equal(near_say(fd, said), ST_OK);
    assert_int_equal(near_map(said, BYTES, &p), ST_NOT_FOUND);
    close(fd);
}

static void refuse(const unsigned char said[NEAR_BYTES], int at, uint64_t value, uint64_t bytes)
{
    unsigned char        forged[NEAR_BYTES];
    const unsigned char *p;
    memcpy(forged, said, NEAR_BYTES);
    if (at) memcpy(forged + at, &value, sizeof value);
    assert_int_equal(near_map(forged, bytes, &p), ST_NOT_FOUND);
}

static void G11_places_that_a_peer_has_made_up_are_not_mapped(void **state)
{
    (void)state;
    unsigned char        said[NEAR_BYTES], noise[NEAR_BYTES];
    const unsigned char *p;
    struct stat          s;
    int                  fd = make(true), other = make(true), ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(near_say(fd, said), ST_OK);
    refuse(said, 0, 0, BYTES + 1); /* shorter than the peer's slab is said to be */
    refuse(said, FD, (uint64_t)other, BYTES);
    refuse(said, FD, 0, BYTES);
    refuse(said, FD, UINT64_MAX, BYTES);
    refuse(said, PID, 1, BYTES);
    refuse(said, PID, UINT64_MAX, BYTES);
    refuse(said, INODE, 1, BYTES);
    refuse(said, LENGTH, UINT64_MAX, UINT64_MAX);
    /* A pipe, named truly, would wait for somebody who writes. */
    assert_int_equal(fstat(ends[0], &s), 0);
    assert_int_equal(near_say(ends[0], noise), ST_OK);
    refuse(noise, 0, 0, 0);
    for (uint32_t i = 0; i < NEAR_BYTES; i++) noise[i] = (unsigned char)(i * 37);
    assert_int_equal(near_map(noise, BYTES, &p), ST_INVALID);
    close(fd);
    refuse(said, 0, 0, BYTES); /* its owner has closed it */
    close(other);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_peer_is_read_where_it_lies),
        cmocka_unit_test(memory_that_could_become_shorter_is_not_mapped),
        cmocka_unit_test(G11_places_that_a_peer_has_made_up_are_not_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
