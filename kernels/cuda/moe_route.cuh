/* moe_route: which experts a row chooses by its logits, and with which weights.   For moe.cu and moe_route_few.cu.
 * truth: kernels/ref/moe.c. A warp has a row, all its lanes call; logits, expert and weight are the row's own. */
#pragma once
#include "kernels/cuda/vec.cuh"

enum { ROUTE_KEEP = 8 /* logits that a lane holds in registers: 256 experts; more are read again */ };

/* (value, id) in order of value descending, id ascending; a NaN is last among equals of -inf */
static __device__ __forceinline__ bool route_before(float v, uint32_t id, float w, uint32_t jd)
{
    return v > w || (v == w && id < jd);
}
static __device__ __forceinline__ float route_key(float v) { return v == v ? v : -INFINITY; }

/* A row of padding chooses nobody: expert n_expert, of weight 0. */
static __device__ __forceinline__ void route_none(uint32_t *expert, float *weight, uint32_t n_expert, uint32_t top_k)
{
    for (uint32_t k = threadIdx.x & 31; k < top_k; k += 32) expert[k] = n_expert, weight[k] = 0.0f;
}

/* The plain softmax of a row's logits: expert[top_k], weight[top_k], best first. */
template <class T>
static __device__ __forceinline__ void route_softmax(uint32_t *expert, float *weight, const T *logits,
                                                     uint32_t n_expert, uint32_t top_k, bool renorm)
{
    const uint32_t lane = threadIdx.x & 31;
    float          v[ROUTE_KEEP], max = -INFINITY, all = 0.0f, chosen = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < ROUTE_KEEP; i++) {
        v[i] = i * 32 + lane < n_expert ? act_load(logits[i * 32 + lane]) : -INFINITY;
        max = fmaxf(max, v[i]);
    }
    for (uint32_t e = ROUTE_KEEP * 32 + lane; e < n_expert; e += 32) max = fmaxf(max, act_load(logits[e]));
    max = warp_max(max);
#pragma unroll
    for (uint32_t i = 0; i < ROUTE_KEEP; i++)
        if (i * 32 + lane < n_expert) all += expf(v[i] - max);
    for (uint32_t e = ROUTE_KEEP * 32 + lane; e < n_expert; e += 32) all += expf(act_load(logits[e]) - max);
    all = warp_sum(all);
    float    last = INFINITY; /* the one chosen before: the next comes after it in order */
    uint32_t last_id = 0;
    bool     any = false;
    for (uint32_t k = 0; k < top_k; k++) {
        float    best = -INFINITY;
        uint32_t best_id = UINT32_MAX;
#pragma unroll
        for (uint32_t i = 0; i < ROUTE_KEEP; i++) {
            uint32_t e = i * 32 + lane;
            float    w = route_key(v[i]);
            if (e < n_expert && (!any || route_before(last, last_id, w, e)) && route_before(w, e, best, best_id))
                best = w, best_id = e;
        }
        for (uint32_t e = ROUTE_KEEP * 32 + lane; e < n_expert; e += 32) {
            float w = route_key(act_load(logits[e]));
            if ((!any || route_before(last, last_id, w, e)) && route_before(w, e, best, best_id)) best = w, best_id = e;
        }
#pragma unroll
        for (int m = 16; m; m >>= 1) {
            float    w = __shfl_xor_sync(0xffffffffu, best, m);
            uint32_t e = __shfl_xor_sync(0xffffffffu, best_id, m);
            if (route_before(w, e, best, best_id)) best = w, best_id = e;
        }
        last = best, last_id = best_id, any = true;
        float p = expf(best - max) / all;
        chosen += p;
        if (lane == 0) expert[k] = best_id, weight[k] = p;
    }
    if (!renorm) return;
    __syncwarp();
    for (uint32_t k = lane; k < top_k; k += 32) weight[k] /= chosen;
}

/* The routers that are no plain softmax (struct op_moe). */
struct route_args {
    const float  *bias;
    enum op_route score;
    uint32_t      n_expert, top_k, n_group, group_keep;
    float         sum_min, sum_add, scale;
    bool          renorm, by_logit; /* by_logit: the choice is by logits, as scores may tie */
    const float  *expert_scale;     /* as in op_moe */
};

static __device__ __forceinline__ float route_load(float x) { return x; }
static __device__ __forceinline__ float route_load(__half x) { return act_load(x); }
static __device__ __forceinline__ float route_load(__nv_bfloat16 x) { return act_load(x); }

/* max, all: of the softmax */
static __device__ __forceinline__ float route_score(float logit, enum op_route score, float max, float all)
{
    return score == OP_ROUTE_SIGMOID ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max) / all;
}

/* A bit for each group that is kept; a lane looks at one group. */
template <class L>
static __device__ __forceinline__ uint32_t route_groups(const L *logits, const struct route_args &a, float max,
                                                        float all)
{
    const uint32_t lane = threadIdx.x & 31, each = a.n_expert / a.n_group;
    float          first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; lane < a.n_group && i < each; i++) {
        uint32_t e = lane * each + i;
        float    c = route_key(route_score(route_load(logits[e]), a.score, max, all) + (a.bias ? a.bias[e] : 0.0f));
        if (c > first)
            second = first, first = c;
        else if (c > second)
            second = c;
    }
    float    mine = first + second;
    uint32_t before = 0; /* groups that are better, or as good and earlier */
    for (uint32_t g = 0; g < a.n_group; g++) {
        float other = __shfl_sync(0xffffffffu, mine, g);
        before += other > mine || (other == mine && g < lane);
    }
    return __ballot_sync(0xffffffffu, lane < a.n_group && before < a.group_keep);
}

/* The others, as route_softmax. The number by which an expert is chosen is computed anew for each of the top_k:
 * registers stay few, and the logits lie in cache. L: type of the logits. */
template <class L>
static __device__ __forceinline__ void route_biased(uint32_t *expert, float *weight, const L *logits,
                                                    const struct route_args &a)
{
    const uint32_t lane = threadIdx.x & 31;
    float          max = -INFINITY, all = 0.0f, chosen = 0.0f;
    if (a.score == OP_ROUTE_SOFTMAX) {
        for (uint32_t e = lane; e < a.n_expert; e += 32) max = fmaxf(max, route_load(logits[e]));
        max = warp_max(max);
        for (uint32_t e = lane; e < a.n_expert; e += 32) all += expf(route_load(logits[e]) - max);
        all = warp_sum(all);
    }
    const uint32_t keep = a.n_group ? route_groups(logits, a, max, all) : 0xffffffffu;
    const uint32_t each = a.n_group ? a.n_expert / a.n_group : a.n_expert;
    float          last = INFINITY; /* the one chosen before: the next comes after it in order */
    uint32_t       last_id = 0;
    for (uint32_t k = 0; k < a.top_k; k++) {
        float    best = -INFINITY, best_score = 0.0f;
        uint32_t best_id = UINT32_MAX;
        for (uint32_t e = lane; e < a.n_expert; e += 32) {
            float s = route_score(route_load(logits[e]), a.score, max, all);
            float w = a.by_logit ? route_load(logits[e]) : s;
            w = route_key(a.bias ? w + a.bias[e] : w);
            if (!(keep >> (e / each) & 1)) w = -INFINITY;
            if ((!k || route_before(last, last_id, w, e)) && route_before(w, e, best, best_id))
                best = w, best_id = e, best_score = s;
        }
#pragma unroll
        for (int m = 16; m; m >>= 1) {
            float    w = __shfl_xor_sync(0xffffffffu, best, m), s = __shfl_xor_sync(0xffffffffu, best_score, m);
            uint32_t e = __shfl_xor_sync(0xffffffffu, best_id, m);
            if (route_before(w, e, best, best_id)) best = w, best_id = e, best_score = s;
        }
        last = best, last_id = best_id;
        chosen += best_score;
        if (lane == 0) expert[k] = best_id, weight[k] = best_score;
    }
    float by = a.scale;
    if (a.renorm) by /= fmaxf(chosen, a.sum_min) + a.sum_add;
    __syncwarp();
    for (uint32_t k = lane; k < a.top_k; k += 32) {
        float factor = a.expert_scale && expert[k] < a.n_expert ? a.expert_scale[expert[k]] : 1.0f;
        weight[k] = __fmul_rn(__fmul_rn(weight[k], by), factor);
    }
}

/* ---------------------------------------------------------------- host */

static inline bool route_is_plain(const struct op_moe *o)
{
    return o->score == OP_ROUTE_SOFTMAX && !o->bias && !o->n_group && o->scale == 0 && o->sum_min == 0 &&
           o->sum_add == 0 && !o->router_f32 && !o->expert_scale;
}
static inline struct route_args route_args_of(const struct op_moe *o)
{
    return { o->bias,
             o->score,
             o->n_expert,
             o->top_k,
             o->n_group,
             o->group_keep,
             o->sum_min,
             o->sum_add,
             o->scale != 0 ? o->scale : 1.0f,
             o->renorm,
             o->score == OP_ROUTE_SIGMOID && !o->bias && !o->n_group,
             o->expert_scale };
}
