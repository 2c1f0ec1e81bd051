// A message as nodes. The page keeps the messages; what a button does is handed in as `actions`.
import { codeBlock, isJson, jsonBlock, prettyJson } from "./code.js";
import { button, copyButton, make } from "./dom.js";
import { markdown } from "./markdown.js";

const ENDS = { length: "its limit of tokens", tool_calls: "a tool call", broken: "a broken connection" };

function stat(name, value) {
  return make("span", {}, name + " ", make("b", {}, value));
}

// The server's own figures; without them (a server before this page, an answer that was stopped) there is no rate.
function stats(message) {
  const { timings, usage, finish } = message, out = [];
  if (timings) {
    out.push(stat("first token", Math.round(timings.queue_ms + timings.prompt_ms) + " ms"));
    if (timings.predicted_per_second) out.push(stat("speed", timings.predicted_per_second.toFixed(1) + " tok/s"));
  }
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens || 0;
    const reasoned = usage.completion_tokens_details?.reasoning_tokens || 0;
    out.push(stat("output", usage.completion_tokens + " tok"));
    if (reasoned) out.push(stat("reasoning", reasoned + " tok"));
    out.push(stat("prompt", usage.prompt_tokens + " tok"), stat("cached", cached + " tok"));
  }
  if (finish && finish !== "stop") out.push(stat("ended by", ENDS[finish] || finish));
  return out;
}

function toolBlock(title, name, text) {
  const summary = make("summary", {}, title + " ", make("b", {}, name || "?"));
  return make("details.tool", { open: true }, summary, isJson(text) ? jsonBlock(text) : codeBlock(text, ""));
}

// Fields for the results of calls that nobody has answered yet.
function resultForm(calls, send) {
  const looks = { rows: 2, spellcheck: false, placeholder: "What the tool returns, text or JSON" };
  const fields = calls.map(() => make("textarea.code", looks));
  const labels = calls.map((call, i) => make("label", {}, make("span", {}, "Result of " + call.name), fields[i]));
  const name = calls.length > 1 ? "Send results" : "Send result";
  return make("div.results", {}, ...labels, button(".main", name, () => send(fields.map(field => field.value))));
}

function editor(message, actions, root) {
  const area = make("textarea", { value: message.content, rows: 4, ariaLabel: "Edit the message" });
  const save = button(".main", "Save and send", () => actions.edited(message, area.value));
  const cancel = button("", "Cancel", () => root.replaceWith(messageNode(message, actions)));
  area.onkeydown = event => {
    if (event.key === "Escape") cancel.click();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save.click();
  };
  root.querySelector(".text, details").replaceWith(make("div.edit", {}, area, make("div.row", {}, save, cancel)));
  root.querySelector(".foot").remove();
  area.focus();
}

const NAMES = { user: "You", assistant: "Assistant", tool: "Tool" };

// What is being done, while an answer comes.
function progress(message) {
  const { content, reasoning, tool_calls, usage } = message;
  if (!content && !reasoning && !tool_calls.length) return make("span", {}, "reading the prompt \u2026");
  const what = content || tool_calls.length ? "writing" : "reasoning";
  return make("span", {}, what + " \u2026 ", make("b", {}, (usage?.completion_tokens ?? 0) + " tok"));
}

// Draws the answer so far into root; called again as the answer grows, and keeps blocks as the reader left them.
export function drawAnswer(root, message, busy) {
  const open = [...root.querySelectorAll("details")].map(node => node.open);
  const parts = [];
  if (message.reasoning) {
    const thinking = busy && !message.content && !message.tool_calls.length;
    const text = make("div.reason", {}, message.reasoning.trim());
    parts.push(make("details", {}, make("summary", {}, thinking ? "Reasoning \u2026" : "Reasoning"), text));
  }
  if (message.content || (!message.tool_calls.length && (busy || !message.reasoning))) {
    const text = make("div.text");
    if (message.json) text.append(busy ? codeBlock(message.content, "json") : jsonBlock(message.content));
    else markdown(text, message.content);
    text.classList.toggle("caret", busy);
    parts.push(text);
  }
  parts.push(...message.tool_calls.map(call => toolBlock("Tool call", call.name, call.arguments)));
  root.querySelector(".answer").replaceChildren(...parts);
  if (busy) root.querySelector(".foot").replaceChildren(progress(message));
  root.querySelectorAll("details").forEach((node, i) => { if (i < open.length) node.open = open[i]; });
}

// What "Copy" takes of an answer: its text, or the arguments of its calls.
function textOf(message) {
  const text = message.json ? prettyJson(message.content) : message.content;
  return text || message.tool_calls.map(call => call.arguments).join("\n");
}

function fillAnswer(root, foot, message, actions) {
  root.append(make("div.answer"), foot);
  drawAnswer(root, message, false);
  const calls = actions.waiting(message);
  if (calls.length) foot.before(resultForm(calls, texts => actions.results(message, texts)));
  foot.append(...stats(message), copyButton(".link", () => textOf(message)));
  if (!message.dropped) foot.append(button(".link", "Try again", () => actions.again(message)));
}

// actions: edited(message, text), again(message), results(message, texts), retry(); waiting(message) gives the calls
// that have no result.
export function messageNode(message, actions) {
  const root = make("div.msg." + message.role), foot = make("div.foot");
  const who = message.role === "assistant" ? message.model || NAMES.assistant : NAMES[message.role];
  root.append(make("div.who", {}, message.dropped ? who + " \u00b7 no longer sent" : who));
  root.classList.toggle("dropped", Boolean(message.dropped));
  if (message.role === "assistant") {
    fillAnswer(root, foot, message, actions);
    return root;
  }
  if (message.role === "tool") root.append(toolBlock("Result of", message.name, message.content));
  else root.append(make("div.text", {}, message.content));
  root.append(foot);
  foot.append(copyButton(".link", () => message.content));
  if (!message.dropped) foot.append(button(".link", "Edit", () => editor(message, actions, root)));
  return root;
}

// Behind a message that has no answer, after the page was loaded again.
export function unansweredNode(actions) {
  const text = make("span", {}, "This message has no answer yet.");
  return make("div.foot", {}, text, button(".link", "Try again", actions.retry));
}

export function errorNode(failure, actions) {
  const tooLong = failure.code === "context_length_exceeded";
  const where = failure.param && !tooLong ? "\nin the field " + failure.param : "";
  const foot = make("div.foot", {}, button(".link", "Try again", actions.retry));
  const text = make("div.text", {}, failure.message + where);
  return make("div.msg.error", { role: "alert" }, make("div.who", {}, "Error"), text, foot);
}

const FIRST = [
  "What is the capital of France?",
  "Tell me a short story about a fox.",
  "Give me a JSON object with name Ada and age 36.",
];

function loadedText(model, tokens) {
  if (!model) return null;
  const room = tokens ? " and reads up to " + tokens.toLocaleString("en") + " tokens." : ".";
  return make("p", {}, "The model ", make("b", {}, model), " is loaded" + room);
}

// model: its name, or "" while it is not known; tokens: what a chat with it can hold, or 0
export function emptyNode(model, tokens, ask) {
  const tips = FIRST.map(text => button("", text, () => ask(text)));
  return make("div.empty", {},
    make("h2", {}, "Ask the model something"),
    loadedText(model, tokens),
    make("p", {}, "What you write goes to this server and nowhere else."),
    make("div.tips", {}, ...tips));
}
