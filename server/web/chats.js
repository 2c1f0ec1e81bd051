// Chats in the browser's IndexedDB. Where it is closed to the page (some private windows), they live with the page.
// A chat: {id, title, at, used, messages}. at: milliseconds of the last change; used: tokens of its context, or null.

const memory = new Map();
let opened = null;

function open() {
  opened ??= new Promise(resolve => {
    let request;
    try {
      request = indexedDB.open("spillway", 1);
    } catch {
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore("chats", { keyPath: "id" });
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
  return opened;
}

// fn gets the object store and returns a request; the promise has its result when the transaction is done.
async function inStore(mode, fn) {
  const db = await open();
  if (!db) return undefined;
  return new Promise((resolve, reject) => {
    const transaction = db.transaction("chats", mode);
    const request = fn(transaction.objectStore("chats"));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

export function newChat() {
  const id = crypto.getRandomValues(new Uint32Array(3)).join("-");
  return { id, title: "", at: Date.now(), used: null, messages: [] };
}

export async function listChats() {
  const all = (await inStore("readonly", store => store.getAll())) || [...memory.values()];
  return all.sort((a, b) => b.at - a.at);
}

export async function saveChat(chat) {
  memory.set(chat.id, chat);
  await inStore("readwrite", store => store.put(structuredClone(chat)));
}

export async function deleteChat(id) {
  memory.delete(id);
  await inStore("readwrite", store => store.delete(id));
}
