// The settings at the side: kept in localStorage, the key in sessionStorage, and read into a request.
import { $ } from "./dom.js";

const SCHEMA = {
  type: "object",
  required: ["city", "people"],
  properties: { city: { type: "string", maxLength: 40 }, people: { type: "integer", minimum: 1, maximum: 99000000 } },
};
const WEATHER = {
  name: "get_weather",
  description: "The weather of a city.",
  parameters: { type: "object", required: ["city"], properties: { city: { type: "string" } } },
};
const DEFAULTS = {
  system: "", temperature: "0.7", top_p: "0.9", max_tokens: "", seed: "", "form-kind": "", tool_choice: "", model: "",
  schema: JSON.stringify(SCHEMA, null, 2),
  tools: JSON.stringify([{ type: "function", function: WEATHER }], null, 2),
};

function stored(area, name, value) {
  try {
    if (value === undefined) return area.getItem("spillway." + name);
    area.setItem("spillway." + name, value);
  } catch {
    // a browser that keeps nothing
  }
  return null;
}

function show() {
  for (const name of ["temperature", "top_p"]) $(name + "-out").textContent = Number($(name).value).toFixed(2);
  $("schema-part").hidden = $("form-kind").value !== "json_schema";
  $("tools-part").hidden = !$("tool_choice").value;
  clearWrong();
}

export function clearWrong() {
  for (const name of ["schema", "tools"]) {
    $(name + "-error").textContent = "";
    $(name).ariaInvalid = "false";
  }
}

function wrong(name, text) {
  $(name + "-error").textContent = text;
  $(name).ariaInvalid = "true";
}

// Shows at the field what the server says of it, with the pointer into the schema that the message has.
export function showRefusal(error) {
  const ofSchema = /^(response_format|structured)/.test(error.param) && $("form-kind").value === "json_schema";
  if (ofSchema) wrong("schema", error.message);
  if (/^(tools|tool_choice)/.test(error.param)) wrong("tools", error.message);
}

function parsed(name, check) {
  let value;
  try {
    value = JSON.parse($(name).value);
  } catch (e) {
    wrong(name, "no JSON: " + e.message);
    throw new Error("the settings hold no valid JSON");
  }
  const why = check(value);
  if (why) {
    wrong(name, why);
    throw new Error("the settings hold a mistake");
  }
  return value;
}

const isObject = v => v && typeof v === "object" && !Array.isArray(v);
const schemaFault = v => (typeof v === "boolean" || isObject(v) ? "" : "a schema is an object");
const toolsFault = v => (Array.isArray(v) && v.length ? "" : "an array with at least one tool is needed");

// The tools, or undefined. Throws where the field is wrong, and says so at the field.
export const chosenTools = () => ($("tool_choice").value ? parsed("tools", toolsFault) : undefined);

// The fields of a request but for its messages. Throws as chosenTools does.
export function requestFields() {
  clearWrong();
  const body = { model: $("model").value || undefined };
  for (const name of ["temperature", "top_p"]) body[name] = Number($(name).value);
  if ($("max_tokens").value) body.max_tokens = Number($("max_tokens").value);
  if ($("seed").value) body.seed = Number($("seed").value);
  const kind = $("form-kind").value;
  if (kind === "json_object") body.response_format = { type: kind };
  if (kind === "json_schema") {
    const schema = parsed("schema", schemaFault);
    body.response_format = { type: kind, json_schema: { name: "answer", strict: true, schema } };
  }
  body.tools = chosenTools();
  if (body.tools) body.tool_choice = $("tool_choice").value;
  return body;
}

export const keptModel = () => stored(localStorage, "model");

// Without a choice the page follows the system.
function startTheme() {
  const root = document.documentElement, kept = stored(localStorage, "theme");
  if (kept) root.dataset.theme = kept;
  $("theme").onclick = () => {
    const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    stored(localStorage, "theme", root.dataset.theme);
  };
}

export function startSettings(onKey) {
  for (const name in DEFAULTS) {
    if (name !== "model") $(name).value = stored(localStorage, name) ?? DEFAULTS[name];
    $(name).addEventListener("input", () => {
      stored(localStorage, name, $(name).value);
      show();
    });
  }
  show();
  $("key").value = stored(sessionStorage, "key") || "";
  $("key").addEventListener("change", () => {
    stored(sessionStorage, "key", $("key").value);
    onKey();
  });
  startTheme();
  $("base").textContent = location.origin + "/v1";
}
