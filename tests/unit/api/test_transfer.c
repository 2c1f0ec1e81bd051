/* kv_transfer_params as a routing sidecar sends and reads them. */
#include "api_world.h"

#define ENGINE "00112233445566778899aabbccddeeff"
#define PARCEL "ffeeddccbbaa99887766554433221100"
#define GOOD                                                                                                            \
    "\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_block_ids\":[7,0,3],\"remote_engine_id\":\"" ENGINE \
    "\",\"remote_request_id\":\"" PARCEL                                                                                \
    "\",\"remote_host\":\"10.0.0.1\",\"remote_port\":7450,\"tp_size\":1,\"more\":{}"

static struct api_peering peering = {
    .keeps = true, .host = "10.0.0.1", .engine = ENGINE, .port = 7450, .block_tokens = 4, .tp_size = 2
};

static void serves_as(enum server_role role)
{
    peering.role = role;
    world.m.peering = &peering;
}

static void the_fields_of_a_pull_are_read(void **state)
{
    (void)state;
    const struct dialect *both[] = { &dialect_chat, &dialect_completion };
    serves_as(ROLE_DECODE);
    for (int i = 0; i < 2; i++) {
        struct call        c;
        struct eng_request r = { .n_prompt = 9 };
        ask_ok(&c, both[i], with(both[i], "\"stream\":true,\"kv_transfer_params\":{" GOOD "}"));
        transfer_request(&c, &r);
        assert_true(r.claim == &c.transfer.claim && !r.parcel);
        assert_int_equal(r.claim->n_block, 3);
        assert_true(r.claim->engine[0] == 0 && r.claim->engine[1] == 0x11 && r.claim->engine[15] == 0xff);
        assert_true(r.claim->id[0] == 0xff && r.claim->id[15] == 0);
        call_free(&c);
    }
}

static void what_asks_for_nothing_changes_nothing(void **state)
{
    (void)state;
    const char *const none[] = { "null", "{}", "{\"do_remote_decode\":false,\"do_remote_prefill\":null}",
                                 "{\"remote_port\":\"any\",\"others\":[1]}" };
    for (enum server_role role = ROLE_BOTH; role <= ROLE_DECODE; role++)
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
            struct call        c;
            struct eng_request r = { .n_prompt = 9 };
            char               field[200];
            serves_as(role);
            snprintf(field, sizeof field, "\"kv_transfer_params\":%s", none[i]);
            ask_ok(&c, &dialect_chat, with(&dialect_chat, field));
            transfer_request(&c, &r);
            assert_true(!r.claim && !r.parcel);
            call_free(&c);
        }
}

/* GOOD with one of its fields replaced. */
static void refuses_field(const char *name, const char *value)
{
    char    field[1200], param[100];
    json_t *v = json_loads("{" GOOD "}", 0, NULL);
    json_object_set_new(v, name, json_loads(value, JSON_DECODE_ANY, NULL));
    char *text = json_dumps(v, 0);
    snprintf(field, sizeof field, "\"kv_transfer_params\":%s", text);
    snprintf(param, sizeof param, "kv_transfer_params.%s", name);
    both_refuse(field, param);
    free(text);
    json_decref(v);
}

static void B12_malformed_parameters_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const odd[] = { "-1", "1.5", "{}", "[[]]", "[1,null]", "[-1]", "[2147483648]", "[1e3]", "true" };
    serves_as(ROLE_DECODE);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        refuses_field("remote_engine_id", odd[i]);
        refuses_field("remote_request_id", odd[i]);
        refuses_field("remote_block_ids", odd[i]);
        refuses_field("remote_host", odd[i]);
        if (strcmp(odd[i], "1.5")) refuses_field("tp_size", strcmp(odd[i], "-1") ? odd[i] : "0");
        refuses_field("remote_port", strcmp(odd[i], "true") ? odd[i] : "65536");
        if (strcmp(odd[i], "true")) refuses_field("do_remote_prefill", odd[i]);
    }
    refuses_field("remote_engine_id", "null");
    refuses_field("remote_request_id", "\"\"");
    refuses_field("remote_block_ids", "null");
    refuses_field("remote_engine_id", "\"00112233445566778899aabbccddeefg\"");
    refuses_field("remote_engine_id", "\"00112233445566778899AABBCCDDEEFF\"");
    refuses_field("remote_engine_id", "\"00112233-4455-6677-8899-aabbccddeeff\"");
    both_refuse("\"kv_transfer_params\":{\"do_remote_prefill\":true,\"do_remote_decode\":true}", "kv_transfer_params");
    both_refuse("\"kv_transfer_params\":[]", "kv_transfer_params");
    both_refuse("\"kv_transfer_params\":\"x\"", "kv_transfer_params");
}

static void B12_a_cache_hit_threshold_is_a_share(void **state)
{
    (void)state;
    static const char *const good[] = { "0", "0.0", "0.5", "1", "1.0", "null" };
    static const char *const bad[] = { "-0.1", "1.01", "true", "\"0.5\"", "[]", "{}", "1e300" };
    char                     field[80];
    serves_as(ROLE_BOTH);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(field, sizeof field, "\"cache_hit_threshold\":%s", good[i]);
        both_accept(field);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(field, sizeof field, "\"cache_hit_threshold\":%s", bad[i]);
        both_refuse(field, "cache_hit_threshold");
    }
    both_accept("\"cache_hit_threshold\":0,\"prompt_logprobs\":1");
    both_refuse("\"cache_hit_threshold\":0.1,\"prompt_logprobs\":1",
                "cache_hit_threshold"); /* none of it would match */
}

static void a_role_takes_its_own_requests_alone(void **state)
{
    (void)state;
    const char *pull = "\"kv_transfer_params\":{" GOOD "}",
               *keep = "\"kv_transfer_params\":{\"do_remote_decode\":true}";
    serves_as(ROLE_PREFILL);
    both_accept(keep);
    both_refuse(pull, "kv_transfer_params.do_remote_prefill");
    both_refuse("\"stream\":true,\"kv_transfer_params\":{\"do_remote_decode\":true}", "stream");
    serves_as(ROLE_DECODE);
    both_accept(pull);
    both_refuse(keep, "kv_transfer_params.do_remote_decode");
    serves_as(ROLE_BOTH);
    both_accept(pull);
    both_accept(keep);
    peering.keeps = false; /* peers are read, and none may read here */
    both_refuse(keep, "kv_transfer_params.do_remote_decode");
    peering.keeps = true;
    world.m.peering = NULL;
    both_accept(pull); /* and computes */
    both_refuse(keep, "kv_transfer_params.do_remote_decode");
}

/* The answer to a request that keeps its prompt; n_block of its blocks are kept. */
static json_t *answer_of(const struct dialect *d, uint32_t n_block)
{
    struct call        c;
    struct buf         out;
    struct eng_request r = { .n_prompt = 21 };
    buf_init(&out, 1 << 20);
    ask_ok(&c, d, with(d, "\"max_tokens\":1,\"kv_transfer_params\":{\"do_remote_decode\":true,\"remote_host\":null}"));
    transfer_request(&c, &r);
    assert_true(r.parcel && !r.claim && r.parcel->n_block_max == 5);
    r.parcel->n_block = n_block;
    for (uint32_t i = 0; i < n_block; i++) r.parcel->slot[i] = (int32_t)(9 - i);
    for (int i = 0; i < KV_PARCEL_ID; i++) r.parcel->id[i] = (unsigned char)(0xff - 0x11 * i);
    say(&c, 0, "a", &out);
    answer_choice_end(&c, 0, ENG_LENGTH, &out);
    answer_end(&c, &out);
    json_t *v = body_of(&out);
    call_free(&c);
    buf_free(&out);
    return v;
}

static void an_answer_names_the_parcel_in_the_types_of_vllm(void **state)
{
    (void)state;
    const struct dialect *both[] = { &dialect_chat, &dialect_completion };
    serves_as(ROLE_PREFILL);
    for (int i = 0; i < 4; i++) {
        json_t       *v = answer_of(both[i / 2], i % 2 ? 0 : 3);
        const json_t *p = json_object_get(v, "kv_transfer_params"), *ids = json_object_get(p, "remote_block_ids");
        assert_true(json_is_true(json_object_get(p, "do_remote_prefill")));
        assert_true(json_is_false(json_object_get(p, "do_remote_decode")));
        assert_string_equal(json_string_value(json_object_get(p, "remote_engine_id")), ENGINE);
        assert_string_equal(json_string_value(json_object_get(p, "remote_request_id")),
                            i % 2 ? "00000000000000000000000000000000" : PARCEL);
        assert_string_equal(json_string_value(json_object_get(p, "remote_host")), "10.0.0.1");
        assert_int_equal(json_integer_value(json_object_get(p, "remote_port")), 7450);
        assert_int_equal(json_integer_value(json_object_get(p, "tp_size")), 2);
        assert_int_equal(json_array_size(ids), i % 2 ? 0 : 3);
        if (i % 2 == 0) assert_int_equal(json_integer_value(json_array_get(ids, 2)), 7);
        /* What one server says another one takes as it is. */
        struct call c;
        char       *text = json_dumps(p, 0), field[600];
        snprintf(field, sizeof field, "\"kv_transfer_params\":%s", text);
        serves_as(ROLE_DECODE);
        ask_ok(&c, both[i / 2], with(both[i / 2], field));
        assert_true(c.transfer.pulls);
        call_free(&c);
        serves_as(ROLE_PREFILL);
        free(text);
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fields_of_a_pull_are_read),
        cmocka_unit_test(what_asks_for_nothing_changes_nothing),
        cmocka_unit_test(B12_malformed_parameters_are_refused_by_name),
        cmocka_unit_test(B12_a_cache_hit_threshold_is_a_share),
        cmocka_unit_test(a_role_takes_its_own_requests_alone),
        cmocka_unit_test(an_answer_names_the_parcel_in_the_types_of_vllm),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
