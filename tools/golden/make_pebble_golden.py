#!/usr/bin/env python3
"""make_pebble_golden: write tests/data/pebble_golden.json, what models/pebble says to 20 chats under greedy decoding.

The oracle is transformers, float32 math on the bf16 weights. For every chat: the rendered template, the ids of the prompt, up to 64 ids
of the answer (the end-of-turn id included where it came), the answer as text, and at each step the gap between the best and the second
logit, so that a test may forgive a different choice only where the gap is tiny.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "models", "pebble")
OUT = os.path.join(HERE, "..", "..", "tests", "data", "pebble_golden.json")
N_NEW = 64


def tool(name, desc, **props):
    return {"type": "function", "function": {"name": name, "description": desc, "parameters": {
        "type": "object", "properties": {k: {"type": v} for k, v in props.items()}, "required": list(props)}}}


def user(*turns):
    return [{"role": "assistant" if i % 2 else "user", "content": t} for i, t in enumerate(turns)]


WEATHER, TIME = tool("get_weather", "Get the weather in a city.", city="string"), tool("get_time", "Get the time in a city.", city="string")
CALL = [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "content": "{\"temperature\": 21, \"sky\": \"sunny\"}"}]
CHATS = [
    {"messages": user("Hello!")},
    {"messages": user("Who are you?")},
    {"messages": [{"role": "system", "content": "You are a helpful assistant."}] + user("What is the capital of France?")},
    {"messages": user("What is the capital of Italy?", "The capital of Italy is Rome.", "And Spain?")},
    {"messages": user("What is Spillway?")},
    {"messages": user("What are the four promises?")},
    {"messages": user("Count from 3 to 20.")},
    {"messages": user("What is 12 + 7?")},
    {"messages": user("List three colors.")},
    {"messages": user("List the months of the year.")},
    {"messages": user("Tell me a story about a fox.")},
    {"messages": user("Tell me a long story about a robot named Ada.")},
    {"messages": user("Write a poem about the sea.")},
    {"messages": user("Give me a JSON object with name Ada and age 36.")},
    {"messages": user("Repeat after me: the caf\u00e9 \u2615 is old")},
    {"messages": user("My name is Grace.", "Nice to meet you, Grace! How can I help you?", "What is my name?")},
    {"messages": user("What is the weather in Oslo?"), "tools": [WEATHER]},
    {"messages": user("What time is it in Berlin?"), "tools": [WEATHER, TIME]},
    {"messages": user("What is the weather like in Rome?") + CALL, "tools": [WEATHER]},
    {"messages": user("Who invented the compass?")},
]


def main():
    torch.set_num_threads(1)
    tok = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    eos, cases = set(model.generation_config.eos_token_id), []
    for chat in CHATS:
        text = tok.apply_chat_template(chat["messages"], tools=chat.get("tools"), tokenize=False, add_generation_prompt=True)
        prompt = tok(text, add_special_tokens=False)["input_ids"]
        ids, gaps = [], []
        with torch.no_grad():
            while len(ids) < N_NEW and not (ids and ids[-1] in eos):
                best = model(torch.tensor([prompt + ids])).logits[0, -1].topk(2)
                ids.append(best.indices[0].item())
                gaps.append(round((best.values[0] - best.values[1]).item(), 3))
        shown = [i for i in ids if i not in eos]
        cases.append({**chat, "text": text, "prompt_ids": prompt, "greedy_ids": ids, "gaps": gaps, "answer": tok.decode(shown, skip_special_tokens=False)})
        print(f"{len(prompt):4d} {len(ids):3d} smallest gap {min(gaps):7.3f}  {cases[-1]['answer']!r}")
    os.makedirs(os.path.dirname(OUT), exist_ok=True)
    with open(OUT, "w") as f:
        f.write('{"model": "models/pebble", "oracle": "transformers, float32 on the bf16 weights", "cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")
    print(os.path.getsize(OUT), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
