// Markdown as nodes: paragraphs, headings, lists, quotes, tables, code, links. There is no way from text to HTML.
import { codeBlock } from "./code.js";
import { make } from "./dom.js";

const INLINE = new RegExp([
  /(`[^`\n]+`)/, /(\*\*[^*\n]+\*\*)/, /(\*[^*\s][^*\n]*\*)/, /(~~[^~\n]+~~)/, // code, strong, em, struck out
  /!?\[([^[\]\n]*)\]\(([^()\s]*)\)/, /(https?:\/\/[^\s<>"'`|)\]]+)/, // [text](address), and an address alone
].map(part => part.source).join("|"), "g");
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)]) +(.*)/;
const RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// A link leads to the web or to mail; any other scheme (javascript:, data:, ..) stays text.
function link(text, address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  return make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", title: url.href }, text);
}

function inline(parent, text) {
  let at = 0;
  for (const m of text.matchAll(INLINE)) {
    parent.append(text.slice(at, m.index));
    at = m.index + m[0].length;
    if (m[1]) parent.append(make("code", {}, m[0].slice(1, -1)));
    else if (m[2]) parent.append(make("strong", {}, m[0].slice(2, -2)));
    else if (m[3]) parent.append(make("em", {}, m[0].slice(1, -1)));
    else if (m[4]) parent.append(make("s", {}, m[0].slice(2, -2)));
    else if (m[7]) {
      const end = m[7].replace(/[.,;:!?]+$/, "");
      parent.append(link(end, end) || end, m[7].slice(end.length));
    } else parent.append(link(m[5] || m[6], m[6]) || m[0]);
  }
  parent.append(text.slice(at));
}

const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(cell => cell.trim());

// A bound on the rule's length keeps the expression from trying too many ways.
function beginsTable(line, next) {
  if (!line.includes("|") || !next.includes("-") || next.length >= 1000) return false;
  return RULE.test(next) && cells(line).length === cells(next).length;
}

function tableRow(tag, line, n) {
  const row = make("tr"), all = cells(line);
  for (let i = 0; i < n; i++) {
    const cell = make(tag);
    inline(cell, all[i] || "");
    row.append(cell);
  }
  return row;
}

// Reads the table whose head is lines[i]; returns the line behind it.
function table(parent, lines, i) {
  const n = cells(lines[i]).length;
  const body = make("tbody"), head = make("thead", {}, tableRow("th", lines[i], n));
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) body.append(tableRow("td", lines[i], n));
  parent.append(make("div.scroll", { tabIndex: 0 }, make("table", {}, head, body)));
  return i;
}

// Reads the code whose fence is lines[i]; an answer that is still being written may lack the end.
function fence(parent, lines, i) {
  const [, mark, lang] = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(lines[i]);
  const code = [];
  for (i++; i < lines.length && !lines[i].trim().startsWith(mark); i++) code.push(lines[i]);
  parent.append(codeBlock(code.join("\n"), lang));
  return i + 1;
}

function addItem(stack, parent, m) {
  const indent = m[1].length, kind = /\d/.test(m[2]) ? "ol" : "ul";
  const ended = list => list && (list.indent > indent || (list.indent === indent && list.kind !== kind));
  while (ended(stack.at(-1))) stack.pop();
  if (!stack.length || stack.at(-1).indent < indent) {
    const list = make(kind), above = stack.at(-1);
    if (kind === "ol") list.start = parseInt(m[2], 10);
    (above && stack.length < 8 ? above.list.lastElementChild : parent).append(list);
    stack.push({ indent, kind, list });
  }
  const item = make("li");
  inline(item, m[3]);
  stack.at(-1).list.append(item);
}

export function markdown(parent, text) {
  const lines = text.split("\n");
  let paragraph = null, quote = null, stack = [];
  parent.textContent = "";
  const end = () => { paragraph = quote = null; stack = []; };
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const heading = /^(#{1,6}) +(.*)/.exec(line), item = ITEM.exec(line), quoted = /^> ?(.*)/.exec(line);
    if (/^\s*(```|~~~)/.test(line)) {
      end();
      i = fence(parent, lines, i);
      continue;
    }
    if (beginsTable(line, lines[i + 1] ?? "")) {
      end();
      i = table(parent, lines, i);
      continue;
    }
    i++;
    if (heading) {
      end();
      const node = make(heading[1].length < 3 ? "h3" : "h4");
      inline(node, heading[2]);
      parent.append(node);
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      end();
      parent.append(make("hr"));
    } else if (item) {
      paragraph = quote = null;
      addItem(stack, parent, item);
    } else if (!line.trim()) {
      paragraph = quote = null;
    } else if (quoted) {
      stack = [];
      paragraph = null;
      if (!quote) parent.append(quote = make("blockquote"));
      else quote.append(make("br"));
      inline(quote, quoted[1]);
    } else {
      stack = [];
      quote = null;
      if (paragraph) paragraph.append("\n");
      else parent.append(paragraph = make("p"));
      inline(paragraph, line);
    }
  }
}
