// The page: the chat that is open, what is asked, and what is shown of it.
import { answer, countTokens, Lost } from "./ask.js";
import { deleteChat, listChats, newChat, saveChat } from "./chats.js";
import { $, button } from "./dom.js";
import { checkServer, contextMax, forgetServer, startServerState } from "./server_state.js";
import { chosenTools, clearWrong, requestFields, showRefusal, startSettings } from "./settings.js";
import { drawChats } from "./sidebar.js";
import { drawAnswer, emptyNode, errorNode, messageNode, unansweredNode } from "./view.js";

const NEARLY_FULL = 0.9;
const USAGE = { include_usage: true, continuous_usage_stats: true };
const STREAMED = { stream: true, stream_options: USAGE, return_timings: true };
const deleted = new Set(); // ids of chats: an answer that ends late does not bring one back
let chat = newChat(), running = null; // running: {abort} of the answer that is being written

// ---- the context

const sent = () => chat.messages.filter(m => !m.dropped);

function messagesToSend() {
  const system = $("system").value.trim();
  const out = system ? [{ role: "system", content: system }] : [];
  for (const m of sent()) {
    if (m.role === "user") out.push({ role: "user", content: m.content });
    else if (m.role === "assistant") out.push(answerToSend(m));
    else out.push({ role: "tool", tool_call_id: m.tool_call_id, name: m.name, content: m.content });
  }
  return out;
}

function answerToSend(m) {
  const asSent = call => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } });
  const calls = m.tool_calls.map(asSent);
  const out = { role: "assistant", content: m.content || (calls.length ? null : "") };
  if (m.reasoning) out.reasoning_content = m.reasoning;
  if (calls.length) out.tool_calls = calls;
  return out;
}

function drawContext(tooLong) {
  const max = contextMax(), used = chat.messages.length ? chat.used : 0;
  $("context").hidden = !max;
  $("meter").value = max && used ? Math.min(used / max, 1) : 0;
  const written = used === null ? "\u2013" : used.toLocaleString("en");
  $("used").textContent = written + " of " + max.toLocaleString("en") + " tokens";
  const full = Boolean(max) && (tooLong || used >= NEARLY_FULL * max);
  $("context").classList.toggle("full", full);
  const why = "The chat is " + (tooLong ? "longer than" : "nearly as long as") + " the model can read.";
  if (full) note("full", why, button("", "New chat", startNew), button("", "Drop oldest", dropOldest));
  else note("full");
}

// A line over the input. Without a text it takes away what stands there, if that is of this kind.
function note(kind, text, ...buttons) {
  const line = $("notice");
  if (!text && line.dataset.kind !== kind) return;
  line.dataset.kind = text ? kind : "";
  line.hidden = !text;
  line.replaceChildren(text || "", ...buttons);
}

// Tokens of what would be sent; Infinity where that is too long for the server to count.
async function count() {
  try {
    const model = $("model").value || undefined;
    return await countTokens({ model, messages: messagesToSend(), tools: chosenTools() });
  } catch (e) {
    if (e.code === "context_length_exceeded") return Infinity;
    throw e;
  }
}

// Whole turns go, a question with all that answered it, until half of the context is free or one turn is left.
async function dropOldest() {
  const mine = chat, max = contextMax();
  try {
    for (let used = Infinity; used > max / 2;) {
      const left = sent(), next = left.findIndex((m, i) => i > 0 && m.role === "user");
      if (next < 0) break;
      for (const m of left.slice(0, next)) m.dropped = true;
      used = await count();
      if (mine !== chat) return;
      mine.used = used === Infinity ? null : used;
    }
  } catch (e) {
    mine.used = null; // the next answer tells
  }
  draw();
  await save();
  if (["user", "tool"].includes(chat.messages.at(-1)?.role)) ask();
}

// ---- drawing

const atEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 80;
const toEnd = () => { $("log").scrollTop = $("log").scrollHeight; };

// Calls of the last answer that have no result behind them.
function waiting(message) {
  if (running || message.dropped) return [];
  const behind = chat.messages.slice(chat.messages.indexOf(message) + 1);
  if (behind.some(m => m.role !== "tool")) return [];
  return message.tool_calls.filter(call => !behind.some(m => m.tool_call_id === call.id));
}

const actions = {
  waiting,
  edited(message, text) {
    if (running) return;
    chat.messages.length = chat.messages.indexOf(message) + 1;
    message.content = text;
    ask();
  },
  again(message) {
    if (running) return;
    chat.messages.length = chat.messages.indexOf(message);
    ask();
  },
  results(message, texts) {
    if (running) return;
    addResults(message, texts);
    ask();
  },
  retry() {
    if (running) return;
    if (chat.messages.at(-1)?.finish === "broken") chat.messages.pop();
    ask();
  },
};

function addResults(message, texts) {
  waiting(message).forEach(({ id, name }, i) => {
    chat.messages.push({ role: "tool", tool_call_id: id, name, content: texts[i] });
  });
}

function draw() {
  if (chat.messages.length) $("list").replaceChildren(...chat.messages.map(m => messageNode(m, actions)));
  else drawEmpty();
  const last = chat.messages.at(-1);
  if (!running && last && last.role !== "assistant") $("list").append(unansweredNode(actions));
  drawContext(false);
}

function drawEmpty() {
  const ask = text => {
    $("prompt").value = text;
    send();
  };
  $("list").replaceChildren(emptyNode($("model").value, contextMax(), ask));
}

async function save() {
  const failed = () => note("save", "This chat could not be saved in the browser.");
  if (chat.messages.length && !deleted.has(chat.id)) await saveChat(chat).catch(failed);
  await refreshChats();
}

async function refreshChats() {
  drawChats(await listChats().catch(() => []), chat.id, {
    open: openChat,
    async renamed(which, title) {
      const mine = which.id === chat.id ? chat : which;
      mine.title = title;
      await saveChat(mine).catch(() => note("save", "The name could not be saved."));
      await refreshChats();
    },
    async remove(which) {
      deleted.add(which.id);
      await deleteChat(which.id);
      if (which.id === chat.id) startNew();
      note("deleted", "Deleted: " + (which.title || "a chat"), button("", "Undo", async () => {
        note("deleted");
        deleted.delete(which.id);
        await saveChat(which);
        openChat(which);
      }));
      refreshChats();
    },
  });
}

// ---- chats

function leave() {
  if (running) running.abort.abort();
  running = null;
  setBusy(false);
  closeDrawers();
}

function openChat(which) {
  if (which.id === chat.id) {
    closeDrawers();
    return;
  }
  leave();
  chat = which;
  clearWrong();
  draw();
  toEnd();
  refreshChats();
  $("prompt").focus();
}

const startNew = () => openChat(newChat());

// ---- asking

function setBusy(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  $("log").ariaBusy = String(on);
}

// Enter while an answer comes leaves the text where it is.
function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  $("prompt").value = "";
  fit();
  const last = chat.messages.at(-1), open = chat.messages.findLast(m => m.role === "assistant");
  if (open && last.role !== "user") addResults(open, waiting(open).map(() => "(no result)"));
  chat.messages.push({ role: "user", content: text });
  chat.title ||= text.slice(0, 60);
  ask();
}

// Draws no more often than drawing takes time, so that a long answer does not hold up the page.
function painter(root, message, owner) {
  let timer = null, cost = 0;
  const paint = () => {
    const stay = atEnd(), from = performance.now();
    timer = null;
    drawAnswer(root, message, true);
    if (message.usage) owner.used = message.usage.total_tokens;
    if (owner === chat) drawContext(false);
    if (stay) toEnd();
    cost = performance.now() - from;
  };
  return { soon() { timer ??= setTimeout(paint, Math.max(40, 6 * cost)); }, stop() { clearTimeout(timer); } };
}

async function ask() {
  const mine = { abort: new AbortController() }, owner = chat;
  const model = $("model").value;
  const message = { role: "assistant", model, content: "", reasoning: "", tool_calls: [], finish: "" };
  let failure = null, paint = null;
  chat.at = Date.now();
  note("deleted");
  try {
    const fields = requestFields();
    message.json = Boolean(fields.response_format);
    const body = { ...fields, ...STREAMED, messages: messagesToSend() };
    running = mine;
    setBusy(true);
    draw();
    const root = messageNode(message, actions);
    $("list").append(root);
    drawAnswer(root, message, true);
    toEnd();
    paint = painter(root, message, owner);
    save();
    await answer(body, message, mine.abort.signal, paint.soon);
  } catch (e) {
    if (e.name === "AbortError") message.finish = "you";
    else failure = e;
  }
  paint?.stop();
  await ended(mine, owner, message, failure);
}

// The answer is kept with its chat, which may not be the one that is shown any more.
async function ended(mine, owner, message, failure) {
  message.tool_calls = message.tool_calls.filter(Boolean);
  if (message.content || message.reasoning || message.tool_calls.length || !failure) owner.messages.push(message);
  if (failure instanceof Lost) message.finish = "broken";
  if (message.usage) owner.used = message.usage.total_tokens;
  if (running === mine) running = null;
  if (owner !== chat) {
    if (!deleted.has(owner.id)) await saveChat(owner).catch(() => {});
    await refreshChats();
    return;
  }
  setBusy(false);
  draw();
  if (failure) {
    $("list").querySelector(":scope > .foot")?.remove();
    $("list").append(errorNode(failure, actions));
    showRefusal(failure);
    if (failure.code === "context_length_exceeded") drawContext(true);
    if (failure instanceof Lost) checkServer();
    if (failure.status === 401) forgetServer();
  }
  toEnd();
  $("prompt").focus({ preventScroll: true });
  await save();
}

const stop = () => { if (running) running.abort.abort(); };

// ---- the page

function fit() {
  const area = $("prompt");
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight + 2, 200) + "px";
}

const DRAWERS = [["show-chats", "chats"], ["show-settings", "settings"]];

function closeDrawers() {
  for (const [opener, drawer] of DRAWERS) {
    $(drawer).classList.remove("open");
    $(opener).ariaExpanded = "false";
  }
}

function openDrawer(opener, drawer) {
  closeDrawers();
  $(drawer).classList.add("open");
  $(opener).ariaExpanded = "true";
}

// Where the server asks for a key, a line over the input leads to the field.
function askForKey(needed) {
  const enter = () => {
    openDrawer(...DRAWERS[1]);
    $("key").focus();
  };
  if (!needed) {
    note("key");
    return;
  }
  if ($("notice").dataset.kind === "key") return;
  note("key", "This server asks for an API key.", button("", "Enter the key", enter));
}

for (const [opener, drawer] of DRAWERS) {
  $(opener).onclick = () => {
    if ($(drawer).classList.contains("open")) {
      closeDrawers();
      return;
    }
    openDrawer(opener, drawer);
    $(drawer).querySelector("button, textarea, input, select").focus();
  };
}
$("prompt").addEventListener("input", fit);
$("prompt").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
$("form").addEventListener("submit", event => {
  event.preventDefault();
  send();
});
$("stop").onclick = stop;
$("new").onclick = startNew;
$("model").addEventListener("change", () => {
  if (!chat.messages.length) drawEmpty();
  drawContext(false);
});
document.querySelector("main").addEventListener("pointerdown", closeDrawers);
document.addEventListener("keydown", event => {
  if (event.key !== "Escape") return;
  const open = DRAWERS.find(([, drawer]) => $(drawer).classList.contains("open"));
  if (open) {
    closeDrawers();
    $(open[0]).focus();
  } else if (!event.target.closest(".edit, #chat-list")) {
    stop();
  }
});
startSettings(forgetServer);
draw();
refreshChats();
startServerState(askForKey);
