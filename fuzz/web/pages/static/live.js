"use strict";
// Keeps a page up to date: events tell that something changed, then the page's own live parts are fetched again.

const problem = document.getElementById("problem");
const connection = document.getElementById("connection");

function complain(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

async function send(url, body) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.ok) return true;
  let told = answer.statusText;
  try {
    const detail = (await answer.json()).detail;
    told = Array.isArray(detail) ? detail.map((one) => one.msg).join("; ") : detail;
  } catch { /* no JSON: the status text has to do */ }
  complain(told);
  return false;
}

// Live parts -------------------------------------------------------------

function keys() {
  return new Set([...document.querySelectorAll("[data-key]")].map((row) => row.dataset.key));
}

let fetching = false;
let again = false;

async function refresh() {
  if (!document.querySelector("[data-live]")) return;
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const before = keys();
      const parts = fresh.querySelectorAll("[data-live]");
      document.querySelectorAll("[data-live]").forEach((part, place) => {
        if (parts[place] && part.innerHTML !== parts[place].innerHTML) part.replaceChildren(...parts[place].childNodes);
      });
      document.querySelectorAll("[data-key]").forEach((row) => {
        if (!before.has(row.dataset.key)) row.classList.add("fresh");
      });
    }
  } finally {
    fetching = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  }
}

if (document.querySelector("[data-live]")) {
  const events = new EventSource("/api/events");
  let first = true;
  events.addEventListener("open", () => { connection.className = "live on"; });
  events.addEventListener("error", () => { connection.className = "live off"; });
  events.addEventListener("change", () => {
    if (!first) refresh();
    first = false;
  });
  window.addEventListener("pagehide", () => events.close());
}

// Parts that take a while ------------------------------------------------

document.querySelectorAll("[data-load]").forEach(async (part) => {
  try {
    const answer = await fetch(part.dataset.load, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.statusText);
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...made.body.childNodes);
  } catch (error) {
    part.textContent = `Plots and script could not be made: ${error.message}`;
  }
});

// Buttons and forms ------------------------------------------------------

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button) return;
  complain("");
  button.disabled = true;
  button.textContent = button.dataset.busy;
  await send(button.dataset.post, {});
  location.pathname === "/corpus" ? location.reload() : setTimeout(refresh, 800);
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const url = form.dataset.start ?? form.dataset.json;
  if (!url) return;
  event.preventDefault();
  complain("");
  if (await send(url, Object.fromEntries(new FormData(form)))) {
    form.dataset.start ? setTimeout(refresh, 800) : location.reload();
  }
});

document.querySelectorAll("form[data-submit] select").forEach((field) => {
  field.addEventListener("change", () => field.form.submit());
});
