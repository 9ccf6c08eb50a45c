"use strict";
// Keeps a page up to date: events tell that something changed, then the page's own live parts are fetched again.

const problem = document.getElementById("problem");
const connection = document.getElementById("connection");

function complain(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// Seconds until what failed so many times in a row is tried again.
function pause(failures) {
  return [1, 2, 5, 10, 30][Math.min(failures, 4)];
}

async function send(url, body) {
  let answer;
  try {
    answer = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch (error) {
    complain(`The service does not answer: ${error.message}`);
    return false;
  }
  if (answer.ok) return true;
  let message = answer.statusText;
  try {
    const detail = (await answer.json()).detail;
    message = Array.isArray(detail) ? detail.map((one) => one.msg).join("; ") : detail;
  } catch { /* no JSON: the status text has to do */ }
  complain(message);
  return false;
}

// Live parts -------------------------------------------------------------

function keys() {
  return new Set([...document.querySelectorAll("[data-key]")].map((row) => row.dataset.key));
}

let fetching = false;
let again = false;
let failures = 0;

async function refresh() {
  if (!document.querySelector("[data-live]")) return;
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.statusText || answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = keys();
    const parts = fresh.querySelectorAll("[data-live]");
    document.querySelectorAll("[data-live]").forEach((part, place) => {
      // What a person has opened stays open.
      parts[place]?.querySelectorAll("details[id]").forEach((one) => {
        one.open = document.getElementById(one.id)?.open ?? false;
      });
      if (parts[place] && part.innerHTML !== parts[place].innerHTML) part.replaceChildren(...parts[place].childNodes);
    });
    document.querySelectorAll("[data-key]").forEach((row) => {
      if (!before.has(row.dataset.key)) row.classList.add("fresh");
    });
    if (failures) complain("");
    failures = 0;
  } catch (error) {
    const seconds = pause(failures++);
    complain(`This page could not be brought up to date: ${error.message}; tried again in ${seconds} s.`);
    setTimeout(refresh, 1000 * seconds);
  } finally {
    fetching = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  }
}

// The first event refreshes too: something may have changed since the page was made. A browser connects again by
// itself after a connection that broke, and never after an answer that is an error.
let events = null;

function listen(tries) {
  events = new EventSource("/api/events");
  events.addEventListener("open", () => { tries = 0; connection.className = "live on"; });
  events.addEventListener("error", () => {
    connection.className = "live off";
    if (events.readyState === EventSource.CLOSED) setTimeout(() => listen(tries + 1), 1000 * pause(tries));
  });
  events.addEventListener("change", refresh);
}

if (document.querySelector("[data-live]")) {
  listen(0);
  window.addEventListener("pagehide", () => events.close());
}

// Parts that take a while ------------------------------------------------

// What fails is tried again; a part that says after how many seconds more may be there is loaded again then.
async function load(part, tries) {
  let seconds = 0;
  try {
    const answer = await fetch(part.dataset.load, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.statusText || answer.status);
    // A smaller case has replaced the page's: the page of that one is opened.
    if (answer.redirected) { location.replace(answer.url.replace(/\/study$/, "")); return; }
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...made.body.childNodes);
    seconds = Number(part.querySelector("[data-retry]")?.dataset.retry ?? 0);
    tries = 0;
  } catch (error) {
    seconds = pause(tries);
    part.textContent = `Plots and script could not be made: ${error.message}; tried again in ${seconds} s.`;
  }
  if (seconds) setTimeout(() => load(part, tries + 1), 1000 * seconds);
}

document.querySelectorAll("[data-load]").forEach((part) => load(part, 0));

// Buttons and forms ------------------------------------------------------

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button) return;
  complain("");
  const label = button.textContent;
  button.disabled = true;
  button.textContent = button.dataset.busy;
  if (await send(button.dataset.post, {}) && location.pathname === "/corpus") location.reload();
  setTimeout(() => {
    button.disabled = false;
    button.textContent = label;
    refresh();
  }, 800);
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const url = form.dataset.start ?? form.dataset.json;
  if (!url) return;
  event.preventDefault();
  complain("");
  const question = form.querySelector("option:checked")?.dataset.question;
  if (question && !confirm(question)) return;
  if (await send(url, Object.fromEntries(new FormData(form)))) {
    form.dataset.start ? setTimeout(refresh, 800) : location.reload();
  }
});

document.querySelectorAll("form[data-submit] select").forEach((field) => {
  field.addEventListener("change", () => field.form.submit());
});
