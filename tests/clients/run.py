#!/usr/bin/env python3
"""The tool loops of agent libraries, as their users write them, against a checkpoint that calls tools (tests/e2e/scripted.py).

    run.py [--preset check] [--list requirements] [name ...]

--list: those that run with the packages of that list (requirements.txt, llama_index.txt).
One line each, then `N passed, N failed, N skipped`. Each library runs in a process of its own: what one loads does not touch another.

Over 500 lines: a list of libraries, which share the server and its replies."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("e2e", "fault"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
ANSWER = "It is sunny in the city, 24 degrees."
SCRIPTS = {"@weather": "<think>\nThe user asks for Rome.</think>\n\n" + CALL % "Rome", "@sunny": ANSWER, "@hello": "Hello to you too.",
           "@form": '{"town": "Oslo", "n": 3}', "@plainly": CALL % "Rome",
           "@note": '<tool_call>\n{"name": "Bash", "arguments": {"command": "cat note.txt", "description": "Shows it"}} \n</tool_call>',
           "@codex": '<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "cat ./note.txt"}}\n\n</tool_call>',
           "@memory": '{"memory": [{"id": "0", "text": "Likes the sea at night"}]}'}
QUESTION = "How is it in Rome? @weather"
TEXTS = ["the sea", "a town by the river", "the sea"]
CLIENTS, LISTS, EMBEDS = {}, {}, set()


def client(fn):
    CLIENTS[fn.__name__] = fn
    LISTS[fn.__name__] = "requirements"
    return fn


def embeds(fn):
    """For a server of a model that makes embeddings."""
    EMBEDS.add(fn.__name__)
    return fn


def weather(city):
    assert city == "Rome", city
    return "@sunny"


@client
def openai(url):
    """The runner that executes tools is the application's: its messages are those of the library's own documentation."""
    import json

    import openai as lib

    c = lib.OpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}}]
    messages = [{"role": "user", "content": QUESTION}]
    for _ in range(4):
        with c.chat.completions.stream(model="m", messages=messages, tools=tools) as s:
            m = s.get_final_completion().choices[0].message
        messages.append(m)
        if not m.tool_calls:
            assert m.content == ANSWER, m
            return
        for t in m.tool_calls:
            messages.append({"role": "tool", "tool_call_id": t.id, "content": weather(**json.loads(t.function.arguments))})
    raise AssertionError(messages)


@client
@embeds
def openai_embeddings(url):
    """Base64, which the library asks for and decodes, and floats; a cut vector; token ids."""
    import openai as lib

    c = lib.OpenAI(base_url=url, api_key="none", max_retries=0)
    a = c.embeddings.create(model="m", input=TEXTS)
    b = c.embeddings.create(model="m", input=TEXTS, encoding_format="float")
    assert [d.index for d in a.data] == [0, 1, 2] and a.data[0].embedding == a.data[2].embedding != a.data[1].embedding
    assert all(abs(x - y) < 1e-7 for p, q in zip(a.data, b.data) for x, y in zip(p.embedding, q.embedding))
    assert len(c.embeddings.create(model="m", input=TEXTS, dimensions=64).data[1].embedding) == 64
    assert c.embeddings.create(model="m", input=[[300, 301], [302]]).usage.prompt_tokens == 3


@client
@embeds
def langchain_embeddings(url):
    from langchain_openai import OpenAIEmbeddings

    e = OpenAIEmbeddings(base_url=url, api_key="none", model="m", max_retries=0, check_embedding_ctx_length=False)
    many = e.embed_documents(TEXTS)
    assert len(many) == 3 and many[0] == many[2] == e.embed_query(TEXTS[0]) != many[1]


@client
def openai_forms(url):
    """Structured output and a strict tool by the library's own helpers, in `auto`, with `required` and by name."""
    from typing import Literal

    import openai as lib
    from pydantic import BaseModel

    class Answer(BaseModel):
        town: str
        n: int

    class get_weather(BaseModel):
        city: Literal["Rome"]  # the model's own spelling of a call is not the one that is required, so the schema must lead it

    c = lib.OpenAI(base_url=url, api_key="none", max_retries=0)
    m = c.chat.completions.parse(model="m", messages=[{"role": "user", "content": "@form"}], response_format=Answer, temperature=0).choices[0].message
    assert m.parsed == Answer(town="Oslo", n=3), m
    for choice in ("auto", "required", {"type": "function", "function": {"name": "get_weather"}}):
        m = c.chat.completions.parse(model="m", messages=[{"role": "user", "content": QUESTION}], tools=[lib.pydantic_function_tool(get_weather)],
                                     tool_choice=choice, temperature=0).choices[0].message
        assert m.tool_calls[0].function.parsed_arguments == get_weather(city="Rome"), (choice, m)


def langchain_loop(model, streamed):
    """An agent's loop with the tool get_weather: the messages, of which the last has no call."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return weather(city)

    bound = model.bind_tools([get_weather])
    messages = [HumanMessage(QUESTION)]
    for _ in range(4):
        if streamed:
            m = None
            for chunk in bound.stream(messages):
                m = chunk if m is None else m + chunk
        else:
            m = bound.invoke(messages)
        messages.append(m)
        if not m.tool_calls:
            break
        for t in m.tool_calls:
            messages.append(ToolMessage(get_weather.invoke(t["args"]), tool_call_id=t["id"]))
    return messages


@client
def langchain(url):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=url, api_key="none", model="m", max_retries=0)
    for streamed in (False, True):
        messages = langchain_loop(model, streamed)
        m = messages[-1]
        assert m.content == ANSWER and len(messages) == 4, messages


@client
def pydantic_ai(url):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    # as the library does by itself, whose tools are strict, and as it is told of servers that bind nothing to a schema
    for profile in (None, OpenAIModelProfile(openai_supports_strict_tool_definition=False)):
        agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none"), profile=profile))

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather of a city."""
            return weather(city)

        assert agent.run_sync(QUESTION).output == ANSWER

        async def streamed():
            async with agent.run_stream(QUESTION) as r:
                return await r.get_output()

        assert asyncio.run(streamed()) == ANSWER


@client
def langchain_structured(url):
    """A class by a tool that is named, and by the model's own JSON."""
    from typing import Literal

    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel

    class Answer(BaseModel):
        """An answer."""
        town: Literal["Oslo"]  # the schema must lead: the model says nothing of a call by itself
        n: Literal[3]

    for method in ("function_calling", "json_schema"):
        model = ChatOpenAI(base_url=url, api_key="none", model="m", max_retries=0, temperature=0).with_structured_output(Answer, method=method)
        assert model.invoke("@form") == Answer(town="Oslo", n=3), method


@client
def pydantic_ai_output_tool(url):
    """An output type as a tool that is required, which is how the library asks by itself; over both of OpenAI's dialects and Anthropic's."""
    from typing import Literal

    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    class Answer(BaseModel):
        town: Literal["Oslo"]
        n: Literal[3]

    openai_ = OpenAIProvider(base_url=url, api_key="none")
    for model in (OpenAIChatModel("m", provider=openai_), OpenAIResponsesModel("m", provider=openai_),
                  AnthropicModel("m", provider=AnthropicProvider(base_url=url[:-len("/v1")], api_key="none"))):
        agent = Agent(model, output_type=Answer, model_settings={"temperature": 0})
        assert agent.run_sync("@form").output == Answer(town="Oslo", n=3), model


@client
def pydantic_ai_output(url):
    """An output type as the model's own JSON."""
    from pydantic import BaseModel
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Answer(BaseModel):
        town: str
        n: int

    agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="none")), output_type=NativeOutput(Answer),
                  model_settings={"temperature": 0})
    assert agent.run_sync("@form").output == Answer(town="Oslo", n=3)


@client
def openai_agents(url):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return weather(city)

    async def both(tool):
        model = OpenAIChatCompletionsModel(model="m", openai_client=AsyncOpenAI(base_url=url, api_key="none", max_retries=0))
        agent = Agent(name="a", instructions="You help.", model=model, tools=[tool])
        assert (await Runner.run(agent, QUESTION)).final_output == ANSWER
        r = Runner.run_streamed(agent, QUESTION)
        async for _ in r.stream_events():
            pass
        assert r.final_output == ANSWER, r

    asyncio.run(both(function_tool(get_weather)))  # strict, which is its default
    asyncio.run(both(function_tool(get_weather, strict_mode=False)))


@client
def openai_agents_responses(url):
    """The library's default model: all items again each turn, and by the id of the response before."""
    from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return weather(city)

    async def ask():
        model = OpenAIResponsesModel(model="m", openai_client=AsyncOpenAI(base_url=url, api_key="none", max_retries=0))
        agent = Agent(name="a", instructions="You help.", model=model, tools=[get_weather])
        first = await Runner.run(agent, QUESTION)
        assert first.final_output == ANSWER, first
        again = await Runner.run(agent, "@hello", previous_response_id=first.last_response_id)
        assert again.final_output == SCRIPTS["@hello"], again
        by_ids = await Runner.run(agent, QUESTION, auto_previous_response_id=True)
        assert by_ids.final_output == ANSWER, by_ids
        r = Runner.run_streamed(agent, QUESTION)
        async for _ in r.stream_events():
            pass
        assert r.final_output == ANSWER, r

    asyncio.run(ask())


@client
def pydantic_ai_responses(url):
    """What the prefix `openai:` stands for; and the Messages API."""
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    for model in (OpenAIResponsesModel("m", provider=OpenAIProvider(base_url=url, api_key="none")),
                  AnthropicModel("m", provider=AnthropicProvider(base_url=url[:-len("/v1")], api_key="none"))):
        agent = Agent(model)

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather of a city."""
            return weather(city)

        first = agent.run_sync(QUESTION)
        assert first.output == ANSWER, (model, first)
        assert agent.run_sync("@hello", message_history=first.all_messages()).output == SCRIPTS["@hello"]

        async def streamed():
            async with agent.run_stream(QUESTION) as r:
                return await r.get_output()

        assert asyncio.run(streamed()) == ANSWER


@client
def langchain_responses(url):
    from langchain_openai import ChatOpenAI

    for by_id in (False, True):
        model = ChatOpenAI(base_url=url, api_key="none", model="m", max_retries=0, use_responses_api=True, use_previous_response_id=by_id)
        for streamed in (False, True):
            messages = langchain_loop(model, streamed)
            m = messages[-1]
            assert m.text == ANSWER and len(messages) == 4, messages


@client
def llama_index(url):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return weather(city)

    async def ask():
        llm = OpenAILike(model="m", api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True, context_window=16000, max_retries=0)
        for streaming in (False, True):
            agent = FunctionAgent(tools=[FunctionTool.from_defaults(fn=get_weather)], llm=llm, streaming=streaming)
            answer = await agent.run(QUESTION)
            assert str(answer) == ANSWER, answer

    asyncio.run(ask())


@client
def instructor(url):
    """A class by a named tool, which is how the library asks by itself, and by JSON in a schema."""
    from typing import Literal

    import instructor as lib
    from openai import OpenAI
    from pydantic import BaseModel

    class Answer(BaseModel):
        town: Literal["Oslo"]
        n: Literal[3]

    for mode in (lib.Mode.TOOLS, lib.Mode.JSON_SCHEMA):
        c = lib.from_openai(OpenAI(base_url=url, api_key="none", max_retries=0), mode=mode)
        got = c.chat.completions.create(model="m", messages=[{"role": "user", "content": "@form"}], response_model=Answer, max_retries=0, temperature=0)
        assert (got.town, got.n) == ("Oslo", 3), (mode, got)
    c = lib.from_openai(OpenAI(base_url=url, api_key="none", max_retries=0), mode=lib.Mode.RESPONSES_TOOLS)
    got = c.responses.create(model="m", input="@form", response_model=Answer, max_retries=0, temperature=0)
    assert (got.town, got.n) == ("Oslo", 3), got


LISTS["llama_index"] = LISTS["instructor"] = "llama_index"  # they want an older openai


@client
def smolagents(url):
    """Every step of its agent must be a call (`required`, content as arrays, stop strings of its own format). When its steps are used
    up it asks the question once more, without tools: then what the model writes is text, also where it looks like a call."""
    from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

    cities = []

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        cities.append(city)
        return "sunny"

    for streamed in (False, True):
        agent = ToolCallingAgent(tools=[get_weather], model=OpenAIModel(model_id="m", api_base=url, api_key="none", temperature=0), max_steps=1,
                                 stream_outputs=streamed, verbosity_level=LogLevel.OFF)
        assert agent.run("How is it in Rome? @plainly") == CALL % "Rome", agent.memory.steps
    assert cities == ["Rome", "Rome"], cities


@client
@embeds
def litellm_embeddings(url):
    import litellm as lib

    r = lib.embedding(model="hosted_vllm/m", input=TEXTS, api_base=url, api_key="none")
    got = [d["embedding"] for d in r.data]
    assert got[0] == got[2] != got[1] and r.usage.prompt_tokens > 6, r


@client
@embeds
def litellm_rerank(url):
    """Its client of vLLM's route, and that of Cohere's second version, with texts and with objects."""
    import litellm as lib

    documents = ["a town by the river", "the sea", "the sea at night"]
    for provider, base in (("hosted_vllm", url), ("cohere", url.rsplit("/v1", 1)[0] + "/v2/rerank")):
        r = lib.rerank(model=provider + "/m", query="the sea", documents=documents, top_n=2, api_base=base, api_key="none", max_retries=0)
        assert [x["index"] for x in r.results] == [1, 2] and r.results[0]["relevance_score"] > 0.999, (provider, r)
        assert r.results[0]["relevance_score"] > r.results[1]["relevance_score"], (provider, r)


@client
def litellm(url):
    """Whole and streamed. With tools it asks for packages that it does not install."""
    import litellm as lib

    for streamed in (False, True):
        messages = [{"role": "user", "content": "@hello"}]
        r = lib.completion(model="hosted_vllm/m", messages=messages, stream=streamed, api_base=url, api_key="none", max_retries=0)
        r = lib.stream_chunk_builder(list(r), messages=messages) if streamed else r
        assert r.choices[0].message.content == SCRIPTS["@hello"] and r.choices[0].finish_reason == "stop", r


@client
def mem0(url):
    """add and search with its defaults: what the model finds is embedded by the other server and kept in a store of vectors in memory."""
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="spillway-mem0-")
    from mem0 import Memory

    size = 256
    m = Memory.from_config({
        "llm": {"provider": "openai", "config": {"model": "m", "openai_base_url": url, "api_key": "none", "max_tokens": 200}},
        "embedder": {"provider": "openai", "config": {"model": "m", "openai_base_url": os.environ["EMBED_URL"], "api_key": "none", "embedding_dims": size}},
        "vector_store": {"provider": "qdrant", "config": {"path": os.path.join(os.environ["MEM0_DIR"], "vectors"), "embedding_model_dims": size}},
        "history_db_path": os.path.join(os.environ["MEM0_DIR"], "history.db")})
    added = m.add("I like the sea at night. @memory", user_id="u")["results"]
    assert [x["memory"] for x in added] == ["Likes the sea at night"] and added[0]["event"] == "ADD", added
    found = m.search("Likes the sea at night", filters={"user_id": "u"})["results"]
    assert [x["memory"] for x in found] == ["Likes the sea at night"] and found[0]["score"] > 0.9, found
    assert not m.search("the sea", filters={"user_id": "other"})["results"]
    assert len(m.get_all(filters={"user_id": "u"})["results"]) == 1
    m.delete_all(user_id="u")
    assert not m.get_all(filters={"user_id": "u"})["results"]


for name in ("litellm", "litellm_embeddings", "litellm_rerank", "mem0"):
    LISTS[name] = "memory"  # large, and litellm pins what others need


@client
def open_webui(url):
    """Its first chat has no library: this is the body that its server sends, with its built-in tools."""
    import json
    import urllib.request

    tools = [{"type": "function", "function": {"name": "tool_%d" % i, "description": "One of many.", "parameters": {"type": "object", "properties": {
        "query": {"type": "string", "default": "", "description": "what"}, "count": {"type": "integer", "default": 5, "description": "how many"}}}}}
        for i in range(36)]
    body = {"stream": True, "model": "m", "messages": [{"role": "user", "content": "@hello"}], "tools": tools}
    r = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=120) as f:
        frames = [json.loads(line[6:]) for line in f if line.startswith(b"data: {")]
    text = "".join(x["choices"][0]["delta"].get("content") or "" for x in frames if x["choices"])
    assert text == SCRIPTS["@hello"] and frames[-1]["choices"][0]["finish_reason"] == "stop", frames


@client
def claude_code(url):
    """The program that claude-agent-sdk brings, with its own system prompt and its own tools: it asks, runs a command, and answers from
    what the command printed; then it goes on with that session. It is told to talk to this server alone."""
    import claude_agent_sdk as lib

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "note.txt"), "w") as f:
            f.write("@sunny\n")
        env = {"HOME": folder, "ANTHROPIC_BASE_URL": url.rsplit("/v1", 1)[0], "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}

        async def ask(prompt, **more):
            options = lib.ClaudeAgentOptions(model="m", cwd=folder, env=env, max_turns=4, allowed_tools=["Bash(cat:*)"], setting_sources=[],
                                             system_prompt={"type": "preset", "preset": "claude_code"}, include_partial_messages=True, **more)
            said = [x async for x in lib.query(prompt=prompt, options=options)]
            return said, said[-1]

        said, end = asyncio.run(ask("What does note.txt say? @note"))
        calls = [b for x in said if isinstance(x, lib.AssistantMessage) for b in x.content if isinstance(b, lib.ToolUseBlock)]
        assert [(b.name, b.input["command"]) for b in calls] == [("Bash", "cat note.txt")], said
        assert not end.is_error and end.result == ANSWER and end.num_turns == 2, end
        assert end.usage["cache_read_input_tokens"] > 0.95 * end.usage["input_tokens"], end.usage  # the second request was the first one and more
        _, end = asyncio.run(ask("@hello", resume=end.session_id))
        assert not end.is_error and end.result == SCRIPTS["@hello"] and end.num_turns == 1, end


@client
def codex(url):
    """The program itself, by its command line: it asks, runs a command, answers from what the command printed, and the session goes on."""
    import json

    import codex_cli_bin

    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "note.txt"), "w") as f:
            f.write("@sunny\n")
        provider = 'model_providers.here={name="Spillway",base_url="%s",wire_api="responses",env_key="KEY"}' % url

        def ask(*words):
            command = [codex_cli_bin.bundled_codex_path(), "exec", *words[:-1], "--json", "--skip-git-repo-check", "-m", "m", "-c", 'model_provider="here"', "-c", provider,
                       "-c", 'sandbox_mode="danger-full-access"', words[-1]]
            r = subprocess.run(command, cwd=folder, env=dict(os.environ, HOME=home, CODEX_HOME=home, KEY="none"), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=120)
            assert r.returncode == 0, r
            events = [json.loads(line) for line in r.stdout.splitlines()]
            return [x["item"] for x in events if x["type"] == "item.completed" and x["item"]["type"] != "error"], events[-1]

        items, end = ask("What does note.txt say? @codex")
        assert [x["type"] for x in items] == ["command_execution", "agent_message"], items
        assert items[0]["exit_code"] == 0 and items[0]["aggregated_output"] == "@sunny\n" and items[1]["text"] == ANSWER, items
        assert end["type"] == "turn.completed", end
        assert end["usage"]["cached_input_tokens"] > 0.45 * end["usage"]["input_tokens"], end  # of two requests, the second
        items, _ = ask("resume", "--last", "@hello")
        assert [x["text"] for x in items] == [SCRIPTS["@hello"]], items


LISTS.update(claude_code="claude_code", codex="codex")  # programs of hundreds of MB


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("--url")
    ap.add_argument("--list")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    if args.url:  # the process of one library
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
        CLIENTS[args.names[0]](args.url)
        return 0
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", args.preset, "spillway"))
    import scripted
    from harness import Server

    s = Server("--model", scripted.make(os.path.join(tempfile.mkdtemp(prefix="spillway-clients-"), "m"), SCRIPTS, context=65536),
               "--served-model-name", "m", "--device", "cpu", "--response-store-mib", "4")
    n_passed = n_failed = 0
    names = args.names or [n for n in CLIENTS if args.list in (None, LISTS[n])]
    embeds = EMBEDS & set(names) or "mem0" in names
    e = Server("--task", "embed", "--matryoshka", "--served-model-name", "m", "--device", "cpu") if embeds else None
    if e:
        os.environ["EMBED_URL"] = "http://127.0.0.1:%d/v1" % e.port
    try:
        for name in names:
            port = (e if name in EMBEDS else s).port
            r = subprocess.run([sys.executable, os.path.abspath(__file__), "--url", "http://127.0.0.1:%d/v1" % port, name],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
            n_passed += r.returncode == 0
            n_failed += r.returncode != 0
            print("ok     %s" % name if r.returncode == 0 else "FAILED %s\n%s" % (name, r.stdout))
    finally:
        s.stop()
        if e:
            e.stop()
    print("%d passed, %d failed, 0 skipped" % (n_passed, n_failed))
    return 1 if n_failed else 0


if __name__ == "__main__":
    import scratch

    scratch.run(main)
