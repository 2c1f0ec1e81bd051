// Code as nodes: a few colours by word, and JSON set out in lines.
import { copyButton, make } from "./dom.js";

const COLOUR_MAX = 50000; // characters; longer code stays plain
const WORDS = new Set(`
  abstract and as assert async await auto begin bool boolean break case catch char class const constexpr continue
  def default del do done double elif else elseif end enum esac except export extends extern false fi final finally
  float fn for from func function global go goto if impl implements import in include inline instanceof int
  interface is lambda let local long loop match mod module mut namespace new nil none None nonlocal not null nullptr
  operator or package pass private protected pub public raise return self short signed sizeof static struct super
  switch template then this throw true True False try type typedef typeof uint undefined union unsigned until use
  using var virtual void volatile where while with yield SELECT FROM WHERE INSERT INTO VALUES UPDATE SET DELETE
  CREATE TABLE JOIN LEFT RIGHT INNER ON GROUP ORDER BY LIMIT AND OR NOT NULL AS`.trim().split(/\s+/));
const HASH = /^(py|python|sh|bash|shell|zsh|rb|ruby|yaml|yml|toml|make|makefile|cmake|dockerfile|perl|r|console)$/;
const DASH = /^(sql|lua|haskell|hs|ada)$/;

function pattern(lang) {
  const line = HASH.test(lang) ? "#[^\\n]*" : DASH.test(lang) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)";
  const comment = lang === "json" ? "(?!)" : line;
  const string = /"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?/.source;
  return new RegExp("(" + comment + ")|(" + string + ")|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)", "g");
}

function colour(parent, text, lang) {
  const re = pattern(lang);
  let at = 0;
  for (let m = re.exec(text); m; m = re.exec(text)) {
    let kind = m[1] ? "note" : m[2] ? "str" : m[3] ? "num" : "";
    if (m[4] && WORDS.has(m[4])) kind = "key";
    if (lang === "json" && m[2] && /^\s*:/.test(text.slice(re.lastIndex, re.lastIndex + 20))) kind = "key";
    if (!kind) continue;
    parent.append(text.slice(at, m.index), make("span.hl-" + kind, {}, m[0]));
    at = re.lastIndex;
  }
  parent.append(text.slice(at));
}

export function codeBlock(text, lang) {
  const code = make("code");
  const known = (lang || "").toLowerCase();
  if (known && text.length <= COLOUR_MAX) colour(code, text, known);
  else code.textContent = text;
  const name = known ? make("span.lang", { ariaHidden: "true" }, known.slice(0, 20)) : null;
  return make("div.block", {}, make("pre", { tabIndex: 0 }, code), name, copyButton("", () => text));
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// JSON in lines, token by token: numbers keep every digit, which JSON.parse and back would not do. Other text stays.
export function prettyJson(text) {
  if (!isJson(text)) return text;
  const tokens = text.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  let out = "", depth = 0;
  const newLine = () => "\n" + "  ".repeat(depth);
  tokens.forEach((token, i) => {
    if (token === "{" || token === "[") {
      depth++;
      out += token;
      if (!/[}\]]/.test(tokens[i + 1][0])) out += newLine();
    } else if (token === "}" || token === "]") {
      depth--;
      out += /[{[]$/.test(tokens[i - 1]) && tokens[i - 1].length === 1 ? token : newLine() + token;
    } else if (token === ",") {
      out += token + newLine();
    } else {
      out += token === ":" ? ": " : token;
    }
  });
  return out;
}

export const jsonBlock = text => codeBlock(prettyJson(text), "json");
