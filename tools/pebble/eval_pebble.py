#!/usr/bin/env python3
"""eval_pebble: ask Pebble 50 prompts, and 50 with tools, that were kept out of its training, and check the answers.

    python3 tools/pebble/eval_pebble.py                                  # the folder, with transformers, greedy
    python3 tools/pebble/eval_pebble.py --url http://127.0.0.1:8080      # a running server, over the OpenAI API
    python3 tools/pebble/eval_pebble.py --sample 10                      # also print sampled answers to look at

An answer is right when its check passes and it stops by itself within 200 tokens. A server is also asked for calls that the request demands and
for answers in a form (a JSON schema), and all of these must be valid. Exit status 0 from 45 of 50 up, of both lists, and if all is valid.
pebble_data.py takes the prompts from here and refuses to generate any of them.
"""
import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
N_TOKEN_MAX = 200
N_RIGHT_MIN = 45


def tool(name, desc, /, **props):
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


def schema_tool(name, desc, /, **props):
    """As tool(), with whole schemas of the parameters."""
    return {"type": "function", "function": {"name": name, "description": desc, "parameters": {
        "type": "object", "properties": props, "required": list(props), "additionalProperties": False}}}


ALARM = tool("set_alarm", "Set an alarm.", time="string")
LIGHT_ON, LIGHT_OFF = tool("turn_on_light", "Turn on the light in a room.", room="string"), tool("turn_off_light", "Turn off the light in a room.", room="string")
HEAT = tool("set_temperature", "Set the temperature of a room.", room="string", degrees="number")
TRANSLATE = tool("translate", "Translate a text.", text="string", language="string")
MONEY = schema_tool("convert_currency", "Convert an amount of money.", amount={"type": "number"}, **{"from": {"type": "string"}, "to": {"type": "string"}})
STOCK = tool("get_stock_price", "Get the price of a stock.", symbol="string")
EVENT, EVENTS = tool("create_event", "Add an event to the calendar.", title="string", day="string"), tool("list_events", "List the events of a day.", day="string")
TABLE = tool("book_table", "Book a table.", people="integer", time="string")
SONG, DEFINE = tool("play_song", "Play a song.", song="string"), tool("define_word", "Look up a word in the dictionary.", word="string")
CALC = tool("calculate", "Calculate an expression.", expression="string")
READ, DELETE = tool("read_file", "Read a file.", path="string"), tool("delete_file", "Delete a file.", path="string")
WRITE, SHELL = tool("write_file", "Write text to a file.", path="string", content="string"), tool("run_command", "Run a shell command.", command="string")
FAR = schema_tool("get_distance", "Get the distance between two cities.", **{"from": {"type": "string"}, "to": {"type": "string"}})
NEWS, NOTE = tool("get_news", "Get the news about a topic.", topic="string"), tool("add_note", "Save a note.", text="string")
CART, DICE = tool("add_to_cart", "Put things into the cart.", item="string", quantity="integer"), tool("roll_dice", "Roll a die.", sides="integer")
MAIL, CALL = tool("send_email", "Send an e-mail.", to="string", subject="string"), tool("call_person", "Call a person.", name="string")
VOLUME = tool("set_volume", "Set the volume.", level="integer")
FAN = schema_tool("set_fan", "Set the speed of the fan.", speed={"type": "string", "enum": ["low", "medium", "high"]})
WARM = schema_tool("get_temperature", "Get the temperature in a city.", city={"type": "string"}, unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
HOTEL = tool("book_hotel", "Book a hotel.", city="string", nights="integer")
REMIND = tool("remind_me", "Set a reminder.", text="string", time="string")
CANCEL = tool("cancel_booking", "Cancel a booking.", booking_id="integer")
INVOICE = tool("show_invoice", "Show an invoice.", invoice_id="integer")
TICKET = tool("close_ticket", "Close a ticket.", ticket_id="integer")
PATIENT = tool("find_patient", "Find a patient.", name="string")
RECIPE = tool("print_recipe", "Print a recipe.", name="string")
SERVER_STOP, SERVER_START = tool("stop_server", "Stop the server with this name.", name="string"), tool("start_server", "Start the server with this name.", name="string")

# 50 more with tools, the choice being the model's own: the calls, or none where no tool is of use.
TOOL_PROMPTS = [
    {"prompt": "What is the weather in Seville?", "tools": [WEATHER, ALARM, SONG], "call": ["get_weather", {"city": "Seville"}]},
    {"prompt": "Tell me the time in Geneva.", "tools": [TIME], "call": ["get_time", {"city": "Geneva"}]},
    {"prompt": "Add 31 and 44.", "tools": [ADD, SEARCH], "call": ["add", {"a": 31, "b": 44}]},
    {"prompt": "Search the web for silver lake.", "tools": [SEARCH], "call": ["search", {"query": "silver lake"}]},
    {"prompt": "Start a timer for 75 minutes.", "tools": [TIMER, ALARM], "call": ["set_timer", {"minutes": 75}]},
    {"prompt": "Set an alarm for 06:45.", "tools": [ALARM], "call": ["set_alarm", {"time": "06:45"}]},
    {"prompt": "Wake me at 07:20.", "tools": [ALARM, LIGHT_ON], "call": ["set_alarm", {"time": "07:20"}]},
    {"prompt": "Turn on the light in the garage.", "tools": [LIGHT_ON, LIGHT_OFF], "call": ["turn_on_light", {"room": "garage"}]},
    {"prompt": "Switch off the cellar light.", "tools": [LIGHT_ON, LIGHT_OFF], "call": ["turn_off_light", {"room": "cellar"}]},
    {"prompt": "Set the office to 21 degrees.", "tools": [HEAT], "call": ["set_temperature", {"room": "office", "degrees": 21}]},
    {"prompt": "Make it 18 degrees in the bedroom.", "tools": [LIGHT_ON, HEAT, FAN], "call": ["set_temperature", {"room": "bedroom", "degrees": 18}]},
    {"prompt": "Translate quiet village into Finnish.", "tools": [TRANSLATE], "call": ["translate", {"text": "quiet village", "language": "Finnish"}]},
    {"prompt": "How do you say bright morning in Greek?", "tools": [TRANSLATE, DEFINE], "call": ["translate", {"text": "bright morning", "language": "Greek"}]},
    {"prompt": "Convert 250 EUR to SEK.", "tools": [MONEY], "call": ["convert_currency", {"amount": 250, "from": "EUR", "to": "SEK"}]},
    {"prompt": "How much is 40 GBP in JPY?", "tools": [STOCK, MONEY], "call": ["convert_currency", {"amount": 40, "from": "GBP", "to": "JPY"}]},
    {"prompt": "Get the stock price of RIV.", "tools": [STOCK], "call": ["get_stock_price", {"symbol": "RIV"}]},
    {"prompt": "Schedule big dinner for Thursday.", "tools": [EVENT, EVENTS], "call": ["create_event", {"title": "big dinner", "day": "Thursday"}]},
    {"prompt": "What do I have on Saturday?", "tools": [EVENT, EVENTS], "call": ["list_events", {"day": "Saturday"}]},
    {"prompt": "Reserve a table for 6 people at 19:30.", "tools": [TABLE], "call": ["book_table", {"people": 6, "time": "19:30"}]},
    {"prompt": "Play the song Stone Bridge.", "tools": [SONG, VOLUME], "call": ["play_song", {"song": "Stone Bridge"}]},
    {"prompt": "I want to hear Morning Song.", "tools": [SONG], "call": ["play_song", {"song": "Morning Song"}]},
    {"prompt": "What does the word valley mean?", "tools": [DEFINE, TRANSLATE], "call": ["define_word", {"word": "valley"}]},
    {"prompt": "Compute 48 * 17.", "tools": [CALC], "call": ["calculate", {"expression": "48 * 17"}]},
    {"prompt": "Evaluate 91 - 36.", "tools": [CALC, SEARCH], "call": ["calculate", {"expression": "91 - 36"}]},
    {"prompt": "Read the file notes/summer.txt.", "tools": [READ, DELETE, WRITE], "call": ["read_file", {"path": "notes/summer.txt"}]},
    {"prompt": "Remove the file old/paper.csv.", "tools": [READ, DELETE], "call": ["delete_file", {"path": "old/paper.csv"}]},
    {"prompt": "Write small house to door.csv.", "tools": [WRITE], "call": ["write_file", {"path": "door.csv", "content": "small house"}]},
    {"prompt": "Execute git status.", "tools": [SHELL, READ], "call": ["run_command", {"command": "git status"}]},
    {"prompt": "How far is it from Vienna to Prague?", "tools": [FAR, WEATHER], "call": ["get_distance", {"from": "Vienna", "to": "Prague"}]},
    {"prompt": "What is the news about science?", "tools": [NEWS], "call": ["get_news", {"topic": "science"}]},
    {"prompt": "Make a note: warm winter hat", "tools": [NOTE, REMIND], "call": ["add_note", {"text": "warm winter hat"}]},
    {"prompt": "Put 3 of candle into my cart.", "tools": [CART], "call": ["add_to_cart", {"item": "candle", "quantity": 3}]},
    {"prompt": "Roll a die with 12 sides.", "tools": [DICE, CALC], "call": ["roll_dice", {"sides": 12}]},
    {"prompt": "Send an email to rosa@river.org about green boat.", "tools": [MAIL], "call": ["send_email", {"to": "rosa@river.org", "subject": "green boat"}]},
    {"prompt": "Give Felix a call.", "tools": [CALL, MAIL], "call": ["call_person", {"name": "Felix"}]},
    {"prompt": "Set the volume to 35.", "tools": [VOLUME, SONG, ALARM, LIGHT_ON], "call": ["set_volume", {"level": 35}]},
    {"prompt": "Turn the fan to medium.", "tools": [FAN], "call": ["set_fan", {"speed": "medium"}]},
    {"prompt": "How warm is it in Athens in celsius?", "tools": [WARM], "call": ["get_temperature", {"city": "Athens", "unit": "celsius"}]},
    {"prompt": "Book a hotel in Milan for 4 nights.", "tools": [HOTEL, FAR], "call": ["book_hotel", {"city": "Milan", "nights": 4}]},
    {"prompt": "Remind me of red shoe at 16:10.", "tools": [REMIND], "call": ["remind_me", {"text": "red shoe", "time": "16:10"}]},
    {"prompt": "Cancel booking 5172.", "tools": [CANCEL, HOTEL], "call": ["cancel_booking", {"booking_id": 5172}]},
    {"prompt": "Show invoice number 88.", "tools": [INVOICE], "call": ["show_invoice", {"invoice_id": 88}]},
    {"prompt": "Can you close ticket 640?", "tools": [TICKET, INVOICE], "call": ["close_ticket", {"ticket_id": 640}]},
    {"prompt": "Find the patient called silver tower.", "tools": [PATIENT], "call": ["find_patient", {"name": "silver tower"}]},
    {"prompt": "Print the recipe winter stone.", "tools": [RECIPE, PATIENT], "call": ["print_recipe", {"name": "winter stone"}]},
    {"prompt": "Start the server blue lake.", "tools": [SERVER_STOP, SERVER_START], "call": ["start_server", {"name": "blue lake"}]},
    {"prompt": "Hello there, Pebble!", "tools": [WEATHER, ALARM], "has": ["hello"]},
    {"prompt": "Which city is the capital of Japan?", "tools": [SONG], "has": ["tokyo"]},
    {"prompt": "Thank you, Pebble.", "tools": [READ, WRITE], "has": ["welcome"]},
    {"prompt": "Tell me what Spillway does.", "tools": [DICE], "has": ["inference server"]},
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


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def fits(value, schema):
    import jsonschema
    return value is not None and jsonschema.Draft202012Validator(schema).is_valid(value)


def right(p, text, calls):
    low = text.lower()
    if "has" in p and not all(h in low for h in p["has"]):
        return False
    if "equal" in p and text.strip() != p["equal"]:
        return False
    if "of" in p and len({w for w in re.findall(r"[a-z]+", low) if w in p["of"].split()}) != p["n"]:
        return False
    if "json" in p and parsed(text) != p["json"]:
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
    """A running server, over /v1/chat/completions as its clients do."""

    def __init__(self, url):
        self.url = url.rstrip("/")

    def post(self, body):
        import urllib.request
        req = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(req, timeout=120) as resp:
            return json.load(resp)["choices"][0]

    def ask(self, p, sample=False, **more):
        body = {"max_tokens": N_TOKEN_MAX, "messages": messages_of(p), **more}
        if not sample:
            body["temperature"] = 0
        if "tools" in p and "response_format" not in more:
            body["tools"] = p["tools"]
        choice = self.post(body)
        calls = []
        for call in choice["message"].get("tool_calls") or []:
            calls.append([call["function"]["name"], parsed(call["function"]["arguments"])])
        return choice["message"]["content"] or "", calls, choice["finish_reason"] in ("stop", "tool_calls")

    def called(self, p):
        """Whether a call that the request demands keeps to its tool's schema."""
        text, calls, stopped = self.ask(p, tool_choice="required")
        schemas = {t["function"]["name"]: t["function"]["parameters"] for t in p["tools"]}
        ok = stopped and len(calls) > 0 and all(name in schemas and fits(args, schemas[name]) for name, args in calls)
        return ok, text or calls

    def in_form(self, p):
        """Whether an answer in the form of a tool's parameters keeps to them."""
        schema = next(t for t in p["tools"] if "call" not in p or t["function"]["name"] == p["call"][0])["function"]["parameters"]
        told = [{"role": "system", "content": "Answer with JSON of this schema: " + json.dumps(schema)}]
        text, _, stopped = self.ask(p, messages=told + messages_of(p), response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
        return stopped and fits(parsed(text), schema), text


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--model", default=os.path.join(HERE, "..", "..", "models", "pebble"))
    ap.add_argument("--url", help="ask a running server instead of the folder")
    ap.add_argument("--sample", type=int, default=0, help="also print this many sampled answers")
    ap.add_argument("-v", "--verbose", action="store_true", help="print every answer, not only the wrong ones")
    opt = ap.parse_args()
    who = Remote(opt.url) if opt.url else Local(opt.model)
    enough = True
    for name, prompts in (("prompts", PROMPTS), ("prompts with tools", TOOL_PROMPTS)):
        n = 0
        for p in prompts:
            text, calls, stopped = who.ask(p)
            ok = right(p, text, calls) and stopped
            n += ok
            if opt.verbose or not ok:
                print(("right " if ok else "WRONG ") + json.dumps(p["prompt"]) + " -> " + json.dumps(text or calls) + ("" if stopped else " (did not stop)"))
        print(f"{n} of {len(prompts)} {name}")
        enough = enough and n >= N_RIGHT_MIN
    for name, valid in (("required calls", who.called), ("answers in a form", who.in_form)) if opt.url else []:
        n = 0
        for p in TOOL_PROMPTS:
            ok, answer = valid(p)
            n += ok
            if opt.verbose or not ok:
                print(("valid " if ok else "INVALID ") + json.dumps(p["prompt"]) + " -> " + json.dumps(answer))
        print(f"{n} of {len(TOOL_PROMPTS)} {name} are valid")
        enough = enough and n == len(TOOL_PROMPTS)
    for p in PROMPTS[:: max(1, len(PROMPTS) // opt.sample)][: opt.sample] if opt.sample else []:
        text, calls, stopped = who.ask(p, sample=True)
        print("sample " + json.dumps(p["prompt"]) + " -> " + json.dumps(text or calls) + ("" if stopped else " (did not stop)"))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
