// Questions to the console's server.

let token = "";

export class Fault extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Fault(0, "The console does not answer: is it still running?");
  }
  let value;
  try {
    value = await answer.json();
  } catch {
    throw new Fault(answer.status, `The console answers with ${answer.status}, and no JSON.`);
  }
  if (!answer.ok) throw new Fault(answer.status, value.fault ?? `The console answers with ${answer.status}.`);
  return value;
}

export async function session() {
  return keep(await ask("/api/session"));
}

export async function login(words) {
  return keep(await post("/api/login", words));
}

export async function logout() {
  return keep(await post("/api/logout", {}));
}

export function get(path, parameters = {}) {
  const words = new URLSearchParams(parameters).toString();
  return ask(words ? `${path}?${words}` : path);
}

export function post(path, value) {
  const headers = { "Content-Type": "application/json", "X-Console-Token": token };
  return ask(path, { method: "POST", headers, body: JSON.stringify(value) });
}

function keep(found) {
  token = found.token;
  return found;
}
