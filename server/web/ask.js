// Requests to the server that this page came from.
import { $ } from "./dom.js";

const PATIENCE_MS = 8000; // for what is answered at once

export function headers() {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
}

// What the server refused: message, and the field and code where it named them.
export class Refused extends Error {
  constructor(status, error) {
    super((error && error.message) || "HTTP " + status);
    this.status = status;
    this.param = (error && error.param) || "";
    this.code = (error && error.code) || "";
  }
}

// No answer, or not all of it: the connection failed, not the request.
export class Lost extends Error {}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refused(response.status, body && body.error);
}

async function post(path, body, signal) {
  try {
    return await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Lost("The server cannot be reached. Your message is kept: try again when the dot above is green.");
  }
}

export async function models() {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await checked(await fetch("/v1/models", { headers: headers(), signal }));
  return (await response.json()).data;
}

// 200: it can answer; 503: not yet, or no more. Throws where nobody answers.
export async function ready() {
  const response = await fetch("/ready", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  return response.status;
}

export async function countTokens(body) {
  const { model, messages, tools } = body;
  const response = await checked(await post("/tokenize", { model, messages, tools }));
  return (await response.json()).count;
}

async function pieceOf(reader) {
  try {
    return await reader.read();
  } catch (e) {
    if (e.name === "AbortError") throw e;
    return { done: true }; // the connection broke: the end of the stream is missing
  }
}

// Events of a stream as objects; onEvent gets each.
async function events(response, onEvent) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "", whole = false;
  for (;;) {
    const { value, done } = await pieceOf(reader);
    if (done) break;
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") whole = true;
      else if (part.startsWith("data: ")) onEvent(JSON.parse(part.slice(6)));
    }
  }
  if (!whole) throw new Lost("The connection broke before the answer was complete. What had come is kept.");
}

function takeCalls(message, deltas) {
  for (const delta of deltas || []) {
    const call = message.tool_calls[delta.index] ??= { id: "", name: "", arguments: "" };
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.name = delta.function.name;
    call.arguments += delta.function?.arguments || "";
  }
}

// Fills message (content, reasoning, tool_calls, finish, usage, timings) as the answer comes; onChange at each piece.
export async function answer(body, message, signal, onChange) {
  const response = await checked(await post("/v1/chat/completions", body, signal));
  await events(response, event => {
    if (event.error) throw new Refused(200, event.error);
    if (event.usage) message.usage = event.usage;
    if (event.timings) message.timings = event.timings;
    const choice = event.choices && event.choices[0];
    if (!choice) return;
    if (choice.finish_reason) message.finish = choice.finish_reason;
    const delta = choice.delta || {};
    message.content += delta.content || "";
    message.reasoning += delta.reasoning || "";
    takeCalls(message, delta.tool_calls);
    onChange();
  });
}
