#include "server/auth.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

static struct slice s(const char *text) { return (struct slice){ text, strlen(text) }; }

static struct auth *make(const char *key1, const char *key2, const char *file)
{
    static const char *keys[2];
    char               err[300];
    struct auth       *a;
    keys[0] = key1;
    keys[1] = key2;
    uint32_t      n_key = key1 ? 1 : 0;
    struct config c = { .api_key = { keys, key2 ? 2 : n_key }, .api_key_file = file };
    assert_int_equal(auth_create(&c, &a, err, sizeof err), ST_OK);
    return a;
}
static bool bearer(struct auth *a, const char *value, uint64_t *tenant)
{
    struct http_head d = { .n_auth = 1, .authorization = s(value) };
    return auth_check(a, &d, tenant);
}

static void only_whole_keys_pass(void **state)
{
    (void)state;
    struct auth *a = make("sk-one", "sk-two", "");
    uint64_t     t1 = 0, t2 = 0, t = 0;
    assert_true(auth_enabled(a));
    assert_true(bearer(a, "Bearer sk-one", &t1));
    assert_true(bearer(a, "bearer sk-two", &t2));
    assert_true(t1 && t2 && t1 != t2);
    static const char *const bad[] = { "Bearer sk-on", "Bearer sk-one2", "Bearer ",         "Bearer",       "",
                                       "Basic sk-one", "sk-one",         "Bearer sk-one ,", "Bearer SK-ONE" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(bearer(a, bad[i], &t));
    struct http_head none = { 0 };
    assert_false(auth_check(a, &none, &t));
    struct http_head two = { .n_auth = 2, .authorization = s("Bearer sk-one") };
    assert_false(auth_check(a, &two, &t));
    struct http_head x = { .n_key = 1, .api_key = s("sk-one") };
    assert_true(auth_check(a, &x, &t));
    assert_true(t == t1);
    struct http_head both = { .n_key = 1, .api_key = s("sk-two"), .n_auth = 1, .authorization = s("Bearer sk-one") };
    assert_false(auth_check(a, &both, &t));
    char *huge = malloc(1 << 20);
    memset(huge, 'a', 1 << 20);
    memcpy(huge, "Bearer ", 7);
    struct http_head big = { .n_auth = 1, .authorization = { huge, 1 << 20 } };
    assert_false(auth_check(a, &big, &t));
    free(huge);
    auth_free(a);
}

static void J6_keys_of_a_file_change_without_restart(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-test-keys-XXXXXX", err[300];
    int  fd = mkstemp(path);
    fchmod(fd, 0600);
    assert_int_equal(dprintf(fd, "# keys\nold-key\r\n\n"), 17);
    struct auth *a = make("fixed", NULL, path);
    uint64_t     t;
    assert_true(bearer(a, "Bearer old-key", &t));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "new-key", 7, 0), 7);
    assert_int_equal(auth_reload(a, err, sizeof err), ST_OK);
    assert_true(bearer(a, "Bearer new-key", &t));
    assert_true(bearer(a, "Bearer fixed", &t));
    assert_false(bearer(a, "Bearer old-key", &t));
    assert_int_equal(ftruncate(fd, 0), 0); /* an empty file never opens the door */
    assert_true(auth_reload(a, err, sizeof err) != ST_OK);
    assert_true(bearer(a, "Bearer new-key", &t));
    unlink(path);
    assert_true(auth_reload(a, err, sizeof err) != ST_OK);
    assert_true(bearer(a, "Bearer new-key", &t));
    close(fd);
    auth_free(a);
}

static void J24_a_file_without_keys_can_mean_that_none_is_valid(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-test-keys-XXXXXX", err[300];
    int  fd = mkstemp(path);
    fchmod(fd, 0600);
    assert_int_equal(dprintf(fd, "of-the-file\n"), 12);
    static const char *fixed[] = { "fixed" };
    struct config      c = { .api_key = { fixed, 1 }, .api_key_file = path, .api_key_file_empty = KEY_FILE_DENY };
    struct auth       *a;
    uint64_t           t;
    assert_int_equal(auth_create(&c, &a, err, sizeof err), ST_OK);
    assert_true(bearer(a, "Bearer of-the-file", &t));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(auth_reload(a, err, sizeof err), ST_OK);
    assert_false(bearer(a, "Bearer of-the-file", &t));
    assert_true(bearer(a, "Bearer fixed", &t));
    assert_true(auth_enabled(a));
    assert_int_equal(pwrite(fd, "comes-back\n", 11, 0), 11);
    assert_int_equal(auth_reload(a, err, sizeof err), ST_OK);
    assert_true(bearer(a, "Bearer comes-back", &t));
    assert_int_equal(pwrite(fd, "bad key!!!\n", 11, 0), 11); /* damaged is not empty: the keys stay */
    assert_true(auth_reload(a, err, sizeof err) != ST_OK);
    assert_true(bearer(a, "Bearer comes-back", &t));
    unlink(path);
    assert_int_equal(auth_reload(a, err, sizeof err), ST_OK);
    assert_false(bearer(a, "Bearer comes-back", &t));
    auth_free(a);
    assert_true(auth_create(&c, &a, err, sizeof err) != ST_OK); /* at the start it is a mistake */
    close(fd);
}

static void J25_a_short_key_of_a_file_is_refused_beyond_loopback(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-test-keys-XXXXXX", err[300];
    int  fd = mkstemp(path);
    fchmod(fd, 0600);
    assert_int_equal(dprintf(fd, "0123456789abcdef\nshort\n"), 23);
    struct config c = { .api_key_file = path, .host = "0.0.0.0" };
    struct auth  *a;
    assert_int_equal(auth_create(&c, &a, err, sizeof err), ST_INVALID);
    assert_non_null(strstr(err, "line 2 has a key of 5 bytes"));
    assert_null(strstr(err, "short"));
    c.host = "127.0.0.1";
    assert_int_equal(auth_create(&c, &a, err, sizeof err), ST_OK);
    auth_free(a);
    unlink(path);
    close(fd);
}

static void salts_separate_tenants(void **state)
{
    (void)state;
    struct auth *a = make("k", NULL, "");
    uint64_t     l1, h1, l2, h2, l3, h3;
    auth_salt(a, 1, 0, 0, &l1, &h1);
    auth_salt(a, 2, 0, 0, &l2, &h2);
    auth_salt(a, 1, 5, 0, &l3, &h3);
    assert_true(l1 != l2 && h1 != h2 && l1 != l3);
    auth_salt(a, 1, 0, 0, &l2, &h2);
    assert_true(l1 == l2 && h1 == h2);
    auth_free(a);
    a = make(NULL, NULL, "");
    assert_false(auth_enabled(a));
    auth_free(a);
}

/* ---- the secret of salts, which a folder keeps */

static char folder[64];

static struct auth *with_folder(void)
{
    char              where[80], err[300] = "";
    const char       *list[1] = { where };
    struct auth      *a = NULL;
    struct config     c = { .kv_nvme = { list, 1 }, .api_key_file = "" };
    const enum status st = (snprintf(where, sizeof where, "%s:1", folder), auth_create(&c, &a, err, sizeof err));
    if (st) fail_msg("no start: %s", err);
    return a;
}
static void secret_of(struct auth *a, unsigned char out[AUTH_SECRET])
{
    memcpy(out, auth_secret(a), AUTH_SECRET);
    auth_free(a);
}
static void put_secret(size_t bytes)
{
    char path[100], junk[200] = { 1, 2, 3 };
    snprintf(path, sizeof path, "%s/SECRET", folder);
    remove(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, junk, bytes), bytes);
    close(fd);
}

static void F29_a_secret_that_a_kill_left_short_is_made_anew(void **state)
{
    (void)state;
    unsigned char one[AUTH_SECRET], two[AUTH_SECRET];
    strcpy(folder, "/tmp/spillway-auth-XXXXXX");
    assert_non_null(mkdtemp(folder));
    secret_of(with_folder(), one);
    secret_of(with_folder(), two);
    assert_memory_equal(one, two, AUTH_SECRET); /* it stays */
    size_t dense = (size_t)test_size(1, 8); /* the step between lengths up to that of a whole secret and a bit more */
    for (size_t bytes = 0; bytes < 100; bytes += bytes < 40 ? dense : 59) {
        put_secret(bytes);
        secret_of(with_folder(), one);
        secret_of(with_folder(), two);
        assert_memory_equal(one, two, AUTH_SECRET);
    }
}

static void F29_a_secret_that_cannot_be_kept_keeps_no_server_down(void **state)
{
    (void)state;
    unsigned char one[AUTH_SECRET], two[AUTH_SECRET];
    char          path[100];
    strcpy(folder, "/tmp/spillway-auth-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/SECRET", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    secret_of(with_folder(), one);
    secret_of(with_folder(), two);
    assert_memory_not_equal(one, two, AUTH_SECRET); /* of each start */
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    secret_of(with_folder(), one);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    secret_of(with_folder(), one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_keys_pass),
        cmocka_unit_test(J24_a_file_without_keys_can_mean_that_none_is_valid),
        cmocka_unit_test(J25_a_short_key_of_a_file_is_refused_beyond_loopback),
        cmocka_unit_test(J6_keys_of_a_file_change_without_restart),
        cmocka_unit_test(salts_separate_tenants),
        cmocka_unit_test(F29_a_secret_that_a_kill_left_short_is_made_anew),
        cmocka_unit_test(F29_a_secret_that_cannot_be_kept_keeps_no_server_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
