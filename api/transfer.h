/* transfer: kv_transfer_params, by which a router splits a request over two servers: one computes the prompt, another
 * goes on with it. Names and types are those of vLLM's requests and answers, so that a router passes them on unread.
 * Thread: the call's owner.
 *
 *   request  do_remote_decode: true    the prompt's blocks are kept here as a parcel, and the answer names it
 *   request  do_remote_prefill: true   the parcel that the other fields name is pulled
 *
 * A request names a parcel, never where to connect to: remote_host and remote_port are told to the router alone. */
#pragma once
#include "base/buf.h"
#include "engine/request.h"

enum server_role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE };

/* What calls must know of this server for that. Constant, shared. */
struct api_peering {
    enum server_role role;
    bool             keeps; /* it can keep parcels: peers may read here */
    char             host[256], engine[2 * KV_PARCEL_ID + 1];
    uint32_t         port, block_tokens, tp_size;
};

/* Of one call. Of several prompts the first one is meant. */
struct call_transfer {
    bool             keeps, pulls;
    struct kv_claim  claim;  /* if pulls */
    struct kv_parcel parcel; /* if keeps; its slots lie in the call's arena */
};

struct call;
/* The parcel and the claim of the call's first prompt, for its request to the engine. */
void transfer_request(struct call *c, struct eng_request *r);
/* ,"kv_transfer_params":{..} of a whole answer; nothing if the prompt was not to be kept. */
void transfer_put(const struct call *c, struct buf *out);
