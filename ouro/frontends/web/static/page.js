// The page of `ouro serve`: shows what the server sends, and sends what the user does.
// All HTML comes from the server, which escapes every text of models, tools and files.
"use strict";

const KEY = "ouro-key";
const NEW_QUESTION = 700; // milliseconds in which a new question takes no answer: it may move a button
const BEAT = 12000; // milliseconds in which a living connection has sent a line
const SILENT = 25000; // milliseconds without a line after which the connection is dead
const FIRST_RETRY = 500;
const LAST_RETRY = 8000;
const NEAR_END = 80; // pixels
const MAX_CARDS = 600; // of more, the oldest are removed

const at = (id) => document.getElementById(id);
const cards = new Map();
const drafts = new Map();
let selected = "";
let questionId = "";
let waiting = 0;
let stream = null;
let retry = FIRST_RETRY;
let retryTimer = 0;
let lastLine = 0;

// Requests

function headers() {
  return { "X-Ouro-Key": localStorage.getItem(KEY) || "", "Content-Type": "application/json" };
}

async function post(path, body) {
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(body) });
  } catch {
    throw new Error("`ouro serve` does not answer. Nothing was sent.");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

function act(path, body = {}) {
  showProblem("");
  return post(path, body).catch((error) => {
    showProblem(error.message);
    throw error;
  });
}

const ofSession = (action) => `sessions/${encodeURIComponent(selected)}/${action}`;

// Login: the token is in the part of the link that browsers do not send

async function logIn(token) {
  try {
    const { key } = await post("login", { token });
    localStorage.setItem(KEY, key);
    return true;
  } catch (error) {
    showLogin(error.message);
    return false;
  }
}

function showLogin(text) {
  at("app").hidden = true;
  at("login").hidden = false;
  showStatus(text);
}

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = at("token").value.trim();
  at("token").value = "";
  if (given && (await logIn(given.slice(given.indexOf("#") + 1)))) begin();
});

// The stream

function showStatus(text) {
  at("status").textContent = text;
  at("status").hidden = !text;
}

function connect() {
  clearTimeout(retryTimer);
  if (stream) stream.abort();
  const own = (stream = new AbortController());
  read(own).catch((error) => {
    if (stream !== own) return; // another one has begun
    if (error.isLogin) {
      showLogin(error.message);
      return;
    }
    showStatus("No connection to `ouro serve`. Trying again …");
    retryTimer = setTimeout(connect, retry);
    retry = Math.min(retry * 2, LAST_RETRY);
  });
}

async function read(own) {
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => own.abort(), SILENT);
    lastLine = Date.now();
  };
  alive();
  try {
    const path = selected ? `events?session=${encodeURIComponent(selected)}` : "events";
    const answer = await fetch(path, { headers: headers(), signal: own.signal });
    if (!answer.ok) {
      const error = new Error((await answer.text()).trim());
      error.isLogin = answer.status === 401;
      throw error;
    }
    showStatus("");
    retry = FIRST_RETRY;
    at("login").hidden = true;
    at("app").hidden = false;
    await readLines(answer.body.getReader(), (line) => {
      alive();
      if (stream === own) take(line);
    });
    throw new Error("the stream has ended");
  } finally {
    clearTimeout(timer);
  }
}

async function readLines(reader, use) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) use(JSON.parse(line));
  }
}

function take(line) {
  if (line.list) showList(line.list);
  if (line.session) showSession(line.session);
  if (line.problem !== undefined) showProblem(line.problem);
}

// The list

function showList(list) {
  at("list").innerHTML = list.page;
  const waits = list.waiting ? `${list.waiting} waiting` : "";
  at("count").textContent = waits;
  document.title = list.waiting ? `(${list.waiting}) ouro` : "ouro";
  waiting = list.waiting;
  showOthers();
  showFolders(list.folders);
}

// How many other sessions wait for an answer.
function showOthers() {
  const others = waiting - (questionId ? 1 : 0);
  at("others").textContent = others > 0 ? ` ${others}` : "";
}

function showFolders(folders) {
  const known = Array.from(at("folder").options, (option) => option.value);
  if (known.join("\n") === folders.map(([folder]) => folder).join("\n")) return;
  const chosen = at("folder").value;
  at("folder").replaceChildren(...folders.map(([folder, shown]) => new Option(shown, folder)));
  if (known.includes(chosen)) at("folder").value = chosen;
}

// One session

function showSession(session) {
  if (session.id !== selected) return;
  const transcript = at("transcript");
  const isAtEnd =
    transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < NEAR_END;
  at("head").innerHTML = session.head;
  replaceKeepingFolds(at("todos"), session.todos);
  const isAgain = session.new && cards.size > 0; // after a lost connection
  const place = transcript.scrollTop;
  if (session.new) clearTranscript();
  for (const [id, html] of session.cards) showCard(id, html);
  at("next").innerHTML = session.waiting;
  showQuestion(session.question);
  showEnd(session);
  if (session.draft && !at("text").value) setText(session.draft);
  if (isAtEnd || (session.new && !isAgain)) transcript.scrollTop = transcript.scrollHeight;
  else if (isAgain) transcript.scrollTop = place;
}

function clearTranscript() {
  cards.clear();
  at("transcript").replaceChildren();
}

function showCard(id, html) {
  let card = cards.get(id);
  if (!card) {
    card = document.createElement("div");
    card.className = "card";
    cards.set(id, card);
    at("transcript").append(card);
    if (cards.size > MAX_CARDS) removeOldest();
  }
  replaceKeepingFolds(card, html);
}

function removeOldest() {
  const [id, card] = cards.entries().next().value;
  cards.delete(id);
  card.remove();
}

// What the user has opened stays open.
function replaceKeepingFolds(element, html) {
  const before = Array.from(element.querySelectorAll("details"), (fold) => fold.open);
  element.innerHTML = html;
  element.querySelectorAll("details").forEach((fold, place) => {
    if (before[place]) fold.open = true;
  });
}

function showEnd(session) {
  const hasEnded = Boolean(session.ended);
  at("session").classList.toggle("ended", hasEnded);
  at("screen").hidden = hasEnded;
  at("end").textContent = hasEnded ? "Remove from the list" : "End the session";
  at("text").placeholder = hasEnded ? "message: it resumes the session" : "message";
  at("stop").hidden = session.state !== "working";
  if (hasEnded && !session.new) showProblem(session.ended);
}

function showProblem(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

// Questions

function showQuestion(question) {
  const id = question ? question.id : "";
  if (id === questionId) return; // a comment may be written in it
  questionId = id;
  showOthers();
  const panel = at("question");
  panel.innerHTML = question ? question.page : "";
  panel.hidden = !question;
  at("session").classList.toggle("asking", Boolean(question));
  if (!question) return;
  setButtons(false);
  setTimeout(() => questionId === id && setButtons(true), NEW_QUESTION);
}

function setButtons(isOn) {
  for (const button of at("question").querySelectorAll("button")) button.disabled = !isOn;
}

function answerOf(button) {
  const panel = at("question");
  const words = (name) => (panel.querySelector(`[${name}]`)?.value || "").trim();
  const { choice, replyWith } = button.dataset;
  if (choice) return { choice, comment: words("data-comment") };
  if (replyWith !== undefined) return { answers: [replyWith] };
  if (button.hasAttribute("data-dismiss")) return { answers: [] };
  const ticked = Array.from(panel.querySelectorAll("input:checked"), (box) => box.value);
  const own = words("data-reply");
  return { answers: own ? [...ticked, own] : ticked };
}

at("question").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button || button.disabled) return;
  setButtons(false);
  act(ofSession("answer"), { question: questionId, ...answerOf(button) }).catch(() =>
    setButtons(true),
  );
});

// What the user writes

function setText(text) {
  at("text").value = text;
  fit(at("text"));
}

function fit(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight / 3)}px`;
}

document.addEventListener("input", (event) => {
  if (event.target.tagName === "TEXTAREA") fit(event.target);
});

// With a keyboard Enter sends; on glass it begins a line.
document.addEventListener("keydown", (event) => {
  const form = event.target.form;
  const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && form;
  const isGlass = matchMedia("(pointer: coarse)").matches;
  if (sends && event.target.tagName === "TEXTAREA" && !isGlass) {
    event.preventDefault();
    form.requestSubmit();
  }
});

at("message").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("text").value;
  if (!text.trim()) return;
  at("send").disabled = true;
  const id = selected;
  try {
    await act(ofSession("message"), { text });
    drafts.delete(id);
    if (id === selected) setText("");
  } catch {
    // the text stays, and the problem is shown
  } finally {
    at("send").disabled = false;
  }
});

document.addEventListener("click", (event) => {
  if (!at("menu").contains(event.target)) at("menu").open = false;
});

at("stop").addEventListener("click", () => act(ofSession("interrupt")).catch(() => {}));

at("end").addEventListener("click", async () => {
  at("menu").open = false;
  const hasEnded = at("session").classList.contains("ended");
  if (!hasEnded && !confirm("End this session? It can be resumed.")) return;
  await act(ofSession("end")).then(() => (location.hash = ""), () => {});
});

at("start").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("task").value;
  if (!text.trim()) return;
  const button = event.submitter || at("start").querySelector("button");
  button.disabled = true;
  showStatus("Starting …");
  try {
    const { id } = await post("start", { folder: at("folder").value, text });
    at("task").value = "";
    showStatus("");
    location.hash = `s/${id}`;
  } catch (error) {
    showStatus(error.message);
  } finally {
    button.disabled = false;
  }
});

// Which session is shown

function route() {
  const found = /^#s\/(.+)$/.exec(location.hash);
  const wanted = found ? decodeURIComponent(found[1]) : "";
  if (selected) drafts.set(selected, at("text").value);
  selected = wanted;
  clearTranscript();
  showProblem("");
  showQuestion(null);
  at("menu").open = false;
  at("head").replaceChildren();
  at("todos").replaceChildren();
  at("next").replaceChildren();
  setText(drafts.get(selected) || "");
  at("screen").href = `screen#${encodeURIComponent(selected)}`;
  at("session").hidden = !selected;
  at("nothing").hidden = Boolean(selected);
  document.body.classList.toggle("one", Boolean(selected));
  connect();
}

addEventListener("hashchange", () => {
  if (isToken()) begin();
  else if (!at("app").hidden) route();
});
// A phone that wakes up has lost its connection without a notice.
document.addEventListener("visibilitychange", () => {
  const isOld = Date.now() - lastLine > BEAT;
  if (!document.hidden && !at("app").hidden && isOld) connect();
});

const isToken = () => location.hash.length > 1 && !location.hash.startsWith("#s/");

async function begin() {
  if (isToken()) {
    const token = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    if (!(await logIn(token))) return;
  }
  showStatus("Connecting …");
  route();
}

begin();
