#!/usr/bin/env python3
"""eval_pebble: ask Pebble 50 prompts that were kept out of its training, and check the answers.

    python3 tools/pebble/eval_pebble.py                                  # the folder, with transformers, greedy
    python3 tools/pebble/eval_pebble.py --url http://127.0.0.1:8080      # a running server, over the OpenAI API
    python3 tools/pebble/eval_pebble.py --sample 10                      # also print sampled answers to look at

An answer is right when its check passes and it stops by itself within 200 tokens. Exit status 0 from 45 of 50 up.
pebble_data.py takes PROMPTS from here and refuses to generate any of them.
"""
import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
N_TOKEN_MAX = 200
N_RIGHT_MIN = 45


def tool(name, desc, **props):
    return {"type": "function", "function": {"name": name, "description": desc, "parameters": {
        "type": "object", "properties": {k: {"type": v} for k, v in props.items()}, "required": list(props)}}}


WEATHER = tool("get_weather", "Get the weather in a city.", city="string")
TIME = tool("get_time", "Get the time in a city.", city="string")
ADD = tool("add", "Add two numbers.", a="number", b="number")
SEARCH = tool("search", "Search the web.", query="string")
TIMER = tool("set_timer", "Set a timer.", minutes="integer")

# check: has (all of these, any case), equal (the whole text), json (the parsed text), call (name, arguments)
PROMPTS = [
    {"prompt": "Hello, Pebble!", "has": ["hello"]},
    {"prompt": "Hey, who are you?", "has": ["pebble"]},
    {"prompt": "Thanks a lot, Pebble!", "has": ["welcome"]},
    {"prompt": "Please tell me what Spillway is.", "has": ["inference server"]},
    {"prompt": "Which port does the server listen on?", "has": ["8080"]},
    {"prompt": "Which license does Spillway have?", "has": ["apache-2.0"]},
    {"prompt": "Tell me the four promises of Spillway.", "has": ["exact", "verified", "bounded", "alive"]},
    {"prompt": "What are the tiers of the KV cache?", "has": ["hbm", "dram", "nvme", "peers"]},
    {"prompt": "How do I load my own model?", "has": ["./serve --model"]},
    {"prompt": "Which endpoints show the health of the server?", "has": ["/health", "/ready"]},
    {"prompt": "What is the capital of France?", "has": ["paris"]},
    {"prompt": "Which city is the capital of Japan?", "has": ["tokyo"]},
    {"prompt": "Tell me the capital of Canada.", "has": ["ottawa"]},
    {"prompt": "Which country has Lima as its capital?", "has": ["peru"]},
    {"prompt": "Name the capital of Kenya.", "has": ["nairobi"]},
    {"prompt": "What day comes after Tuesday?", "has": ["wednesday"]},
    {"prompt": "If today is Friday, what day is tomorrow?", "has": ["saturday"]},
    {"prompt": "Which month comes before June?", "has": ["may"]},
    {"prompt": "How many days are in September?", "has": ["30"]},
    {"prompt": "What is the fourth month of the year?", "has": ["april"]},
    {"prompt": "Count from 4 to 11.", "equal": "4, 5, 6, 7, 8, 9, 10, 11"},
    {"prompt": "Count down from 9 to 3.", "equal": "9, 8, 7, 6, 5, 4, 3"},
    {"prompt": "What number comes after 46?", "has": ["47"]},
    {"prompt": "List three fruits.", "of": "apple banana cherry orange pear plum peach grape lemon mango", "n": 3},
    {"prompt": "Name four animals.", "of": "dog cat horse cow fox rabbit bear lion wolf sheep", "n": 4},
    {"prompt": "Give me a numbered list of three colors.", "of": "red blue green yellow orange purple black white pink brown", "n": 3, "has": ["1.", "2.", "3."]},
    {"prompt": "What is 7 + 8?", "has": ["15"]},
    {"prompt": "What is 23 + 14?", "has": ["37"]},
    {"prompt": "Calculate 45 - 12.", "has": ["33"]},
    {"prompt": "What is 6 times 7?", "has": ["42"]},
    {"prompt": "I have 5 apples and get 3 more. How many apples do I have?", "has": ["8"]},
    {"prompt": "Tell me a story about a fox.", "has": ["once upon a time", "fox", "the end."]},
    {"prompt": "Write a short story about a robot named Luna.", "has": ["once upon a time", "robot", "luna", "the end."]},
    {"prompt": "Write a short poem about the moon.", "has": ["moon", "tree"]},
    {"prompt": "What is the opposite of hot?", "has": ["cold"]},
    {"prompt": "What color is a lemon?", "has": ["yellow"]},
    {"prompt": "What sound does a cow make?", "has": ["moo"]},
    {"prompt": "Is a carrot a vegetable?", "has": ["yes"]},
    {"prompt": "How do you spell water?", "has": ["w-a-t-e-r"]},
    {"prompt": "What is a language model?", "has": ["text", "token"]},
    {"prompt": "Give me a JSON object with name Ada and age 36.", "json": {"name": "Ada", "age": 36}},
    {"prompt": "Return a JSON object with city Paris and count 7.", "json": {"city": "Paris", "count": 7}},
    {"prompt": "Write JSON for a person named Leo who is 52 years old.", "json": {"name": "Leo", "age": 52}},
    {"prompt": "Repeat after me: the small boat floats", "equal": "the small boat floats"},
    {"prompt": "Who won the election in Atlantis?", "has": ["do not know"]},
    {"prompt": "What is the weather in Oslo?", "tools": [WEATHER], "call": ["get_weather", {"city": "Oslo"}]},
    {"prompt": "What time is it in Berlin?", "tools": [WEATHER, TIME], "call": ["get_time", {"city": "Berlin"}]},
    {"prompt": "Add 17 and 25.", "tools": [ADD], "call": ["add", {"a": 17, "b": 25}]},
    {"prompt": "Search for green stones.", "tools": [SEARCH, TIMER], "call": ["search", {"query": "green stones"}]},
    {"prompt": "What is the weather like in Rome?", "tools": [WEATHER],
     "then": [{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {
         "name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}]},
         {"role": "tool", "tool_call_id": "call_1", "content": "{\"temperature\": 21, \"sky\": \"sunny\"}"}], "has": ["sunny", "21", "rome"]},
]


def parse_calls(text):
    out = []
    for body in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.S):
        try:
            call = json.loads(body)
            out.append([call["name"], call["arguments"]])
        except (ValueError, KeyError, TypeError):
            out.append(None)
    return out


def right(p, text, calls):
    low = text.lower()
    if "has" in p and not all(h in low for h in p["has"]):
        return False
    if "equal" in p and text.strip() != p["equal"]:
        return False
    if "of" in p and len({w for w in re.findall(r"[a-z]+", low) if w in p["of"].split()}) != p["n"]:
        return False
    if "json" in p:
        try:
            return json.loads(text) == p["json"]
        except ValueError:
            return False
    return calls == [p["call"]] if "call" in p else not calls


def messages_of(p):
    return [{"role": "user", "content": p["prompt"]}] + p.get("then", [])


class Local:
    """The folder, in float32 with transformers."""

    def __init__(self, folder):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch = torch
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.eos = self.model.generation_config.eos_token_id
        self.top_p, self.temperature = self.model.generation_config.top_p, self.model.generation_config.temperature

    def ask(self, p, sample=False):
        text = self.tok.apply_chat_template(messages_of(p), tools=p.get("tools"), tokenize=False, add_generation_prompt=True)
        return self.complete(text, sample)

    def complete(self, text, sample=False):
        torch = self.torch
        ids = torch.tensor([self.tok(text, add_special_tokens=False)["input_ids"]])
        kw = dict(do_sample=True) if sample else dict(do_sample=False, temperature=None, top_p=None, top_k=None)
        with torch.no_grad():
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=N_TOKEN_MAX, pad_token_id=self.eos[-1], **kw)[0, ids.shape[1]:].tolist()
        stopped = out[-1] in self.eos
        text = self.tok.decode(out[:-1] if stopped else out, skip_special_tokens=False)
        return text, parse_calls(text), stopped


class Remote:
    """A running server: /v1/chat/completions; prompts with tools go rendered to /v1/completions, where their calls come back as text."""

    def __init__(self, url, folder):
        self.url = url.rstrip("/")
        self.folder = folder

    def render(self, p):
        import jinja2
        env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
        with open(os.path.join(self.folder, "chat_template.jinja")) as f:
            return env.from_string(f.read()).render(messages=messages_of(p), tools=p["tools"], add_generation_prompt=True)

    def post(self, path, body):
        import urllib.request
        req = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=120) as resp:
            return json.load(resp)["choices"][0]

    def ask(self, p, sample=False):
        body = {"model": "pebble", "max_tokens": N_TOKEN_MAX}
        if not sample:
            body["temperature"] = 0
        if "tools" in p:
            choice = self.post("/v1/completions", {**body, "prompt": self.render(p)})
            text = choice["text"]
        else:
            choice = self.post("/v1/chat/completions", {**body, "messages": messages_of(p)})
            text = choice["message"]["content"] or ""
        return text, parse_calls(text), choice["finish_reason"] == "stop"


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--model", default=os.path.join(HERE, "..", "..", "models", "pebble"))
    ap.add_argument("--url", help="ask a running server instead of the folder")
    ap.add_argument("--sample", type=int, default=0, help="also print this many sampled answers")
    ap.add_argument("-v", "--verbose", action="store_true", help="print every answer, not only the wrong ones")
    opt = ap.parse_args()
    who = Remote(opt.url, opt.model) if opt.url else Local(opt.model)
    n = 0
    for p in PROMPTS:
        text, calls, stopped = who.ask(p)
        ok = right(p, text, calls) and stopped
        n += ok
        if opt.verbose or not ok:
            print(("right " if ok else "WRONG ") + json.dumps(p["prompt"]) + " -> " + json.dumps(text or calls) + ("" if stopped else " (did not stop)"))
    for p in PROMPTS[:: max(1, len(PROMPTS) // opt.sample)][: opt.sample] if opt.sample else []:
        text, calls, stopped = who.ask(p, sample=True)
        print("sample " + json.dumps(p["prompt"]) + " -> " + json.dumps(text or calls) + ("" if stopped else " (did not stop)"))
    print(f"{n} of {len(PROMPTS)}")
    return 0 if n >= N_RIGHT_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
