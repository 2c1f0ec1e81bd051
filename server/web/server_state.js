// Whether the server answers, by its /ready: the dot at the top. A page in the background does not ask.
import { models, ready, Refused } from "./ask.js";
import { $, make } from "./dom.js";
import { keptModel } from "./settings.js";

const EVERY_MS = 5000, EVERY_MS_GONE = 1000;
const NO_KEY = "the API key is missing or wrong";
let known = [], timer = null, asked = 0, denied = false; // denied: the key is missing or wrong, and is not tried again

let onState = () => {};

function say(kind, text) {
  $("dot").className = "dot " + kind;
  if ($("state").textContent !== text) $("state").textContent = text;
}

// Tokens that the chosen model can hold; 0: not known.
export const contextMax = () => known.find(m => m.id === $("model").value)?.max_model_len || 0;

async function loadModels() {
  const chosen = $("model").value || keptModel();
  known = await models();
  $("model").replaceChildren(...known.map(m => make("option", { value: m.id }, m.id)));
  if (known.some(m => m.id === chosen)) $("model").value = chosen;
  $("model").dispatchEvent(new Event("change"));
}

// Asks at once, and goes on asking. Of two that overlap the later one speaks.
export async function checkServer() {
  const mine = ++asked;
  let kind = "no", text = "no answer, trying again";
  clearTimeout(timer);
  try {
    const status = await ready();
    if (status === 200 && denied) {
      text = NO_KEY;
    } else if (status === 200) {
      if (!$("dot").classList.contains("ok")) await loadModels();
      kind = "ok";
      text = "ready";
    } else {
      text = status === 503 ? "the server is not ready" : "error " + status;
    }
  } catch (e) {
    if (e instanceof Refused && mine === asked) {
      denied = e.status === 401;
      text = denied ? NO_KEY : e.message;
    }
  }
  if (mine !== asked) return;
  say(kind, text);
  onState(denied && text === NO_KEY);
  timer = setTimeout(() => { if (!document.hidden) checkServer(); }, kind === "ok" ? EVERY_MS : EVERY_MS_GONE);
}

// onDenied(needed): whether the server asks for another key, after each look at it.
export function startServerState(onDenied) {
  onState = onDenied;
  document.addEventListener("visibilitychange", () => { if (!document.hidden) checkServer(); });
  return checkServer();
}

// After another key everything is asked anew.
export function forgetServer() {
  denied = false;
  say("", "connecting");
  return checkServer();
}
