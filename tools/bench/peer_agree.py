#!/usr/bin/env python3
"""peer_agree: whether two servers say the same: greedy tokens of random prompts of token ids, one server's against the other's.

    python3 tools/bench/peer_agree.py OURS_URL PEER_URL [--prompts 12] [--prompt-tokens 24] [--output-tokens 32] [--near 0.05]

OURS_URL is a Spillway (its logprobs say how near the second token was), PEER_URL a llama-server with the same weights
(make_random_model.py --gguf). Where two texts part, the step is shown with the gap between our two best logprobs: a gap below --near
is a near-tie that rounding may decide either way, and what follows it is not compared. Ends with 1 if they part anywhere else."""
import argparse
import json
import random
import sys
import urllib.request


def ask(url, path, body):
    r = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=600) as f:
        return json.load(f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ours")
    p.add_argument("peer")
    p.add_argument("--prompts", type=int, default=12)
    p.add_argument("--prompt-tokens", type=int, default=24)
    p.add_argument("--output-tokens", type=int, default=32)
    p.add_argument("--near", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    rng = random.Random(o.seed)
    whole = near = far = same = 0
    for i in range(o.prompts):
        ids = [rng.randrange(300, 2300) for _ in range(o.prompt_tokens)]
        mine = ask(o.ours, "/v1/completions", {"prompt": ids, "max_tokens": o.output_tokens, "temperature": 0, "ignore_eos": True, "logprobs": 2})
        other = ask(o.peer, "/completion", {"prompt": ids, "n_predict": o.output_tokens, "temperature": 0, "ignore_eos": True,
                                            "cache_prompt": False, "samplers": ["top_k"], "top_k": 1, "n_probs": 2, "return_tokens": True})
        a = mine["choices"][0]["logprobs"]
        b = [t["token"] for t in other["completion_probabilities"]]
        n = next((k for k in range(min(len(a["tokens"]), len(b))) if a["tokens"][k] != b[k]), None)
        if n is None and len(a["tokens"]) == len(b):
            whole += 1
            same += len(b)
            continue
        n = min(len(a["tokens"]), len(b)) if n is None else n
        same += n
        top = sorted(a["top_logprobs"][n].values(), reverse=True)
        gap = top[0] - top[1]
        near, far = (near + 1, far) if gap < o.near else (near, far + 1)
        print(f"prompt {i}: part at token {n}: {a['tokens'][n]!r} and {b[n]!r}; our two best are {gap:.4f} apart"
              + ("" if gap < o.near else ": MORE THAN A NEAR-TIE"))
    print(f"{whole} of {o.prompts} texts of {o.output_tokens} tokens are equal, {near} part at a near-tie, {far} elsewhere; {same} tokens equal before that")
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()
