// The list of chats: open, rename, delete.
import { $, button, make } from "./dom.js";

let latest = new Map(); // the chats by id, as they were last handed in

// actions: open(chat), renamed(chat, title), remove(chat)
// Rows that stay are the same nodes: a button must not be replaced between the press and the release of the mouse.
export function drawChats(chats, current, actions) {
  const list = $("chat-list");
  const rows = new Map([...list.children].map(item => [item.dataset.id, item]));
  latest = new Map(chats.map(chat => [chat.id, chat]));
  chats.forEach((chat, place) => {
    const item = rows.get(chat.id) ?? make("li");
    rows.delete(chat.id);
    fill(item, chat, actions);
    item.classList.toggle("now", chat.id === current);
    item.querySelector(".open")?.setAttribute("aria-current", String(chat.id === current));
    if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
  });
  for (const item of rows.values()) item.remove();
}

// Fills a row that is new or has another name; one whose name is being edited stays.
function fill(item, { id, title }, actions) {
  const name = title || "New chat";
  if (item.dataset.name === name || item.querySelector("input")) return;
  item.dataset.id = id;
  item.dataset.name = name;
  const open = button(".open", name, () => actions.open(latest.get(id)), name);
  const rename = button(".small", "\u270e", () => edit(item, latest.get(id), actions), "Rename " + name);
  const remove = button(".small", "\u2715", () => actions.remove(latest.get(id)), "Delete " + name);
  item.replaceChildren(open, rename, remove);
}

function edit(item, chat, actions) {
  const field = make("input", { value: chat.title, maxLength: 200, ariaLabel: "Name of the chat" });
  let ended = false;
  const end = async (keep, byKey) => {
    if (ended) return;
    ended = true;
    field.remove();
    item.dataset.name = "";
    await actions.renamed(chat, keep ? field.value.trim() || chat.title : chat.title);
    if (byKey) item.querySelector(".open")?.focus();
  };
  field.onkeydown = event => {
    if (event.key === "Enter") end(true, true);
    if (event.key === "Escape") end(false, true);
  };
  field.onblur = () => end(true, false);
  item.replaceChildren(field);
  field.select();
}
