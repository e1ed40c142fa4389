// The full screen of one session: asks for a ticket, then starts the terminal with it.
"use strict";

const TOO_LONG = 15000;
const id = decodeURIComponent(location.hash.slice(1));
const begin = window.onload; // of the terminal: it would start without a ticket
window.onload = null;

function say(text, canTryAgain) {
  document.getElementById("text").textContent = text;
  document.getElementById("again").hidden = !canTryAgain;
  document.getElementById("cover").hidden = false;
}

async function open() {
  document.getElementById("page").href = "./#s/" + encodeURIComponent(id);
  if (typeof begin !== "function") {
    say("The full screen needs a package where ouro runs: pip install ouro[serve]", false);
    return;
  }
  let answer;
  try {
    answer = await fetch(`sessions/${encodeURIComponent(id)}/ticket`, {
      method: "POST",
      headers: { "X-Ouro-Key": localStorage.getItem("ouro-key") || "" },
    });
  } catch {
    say("`ouro serve` does not answer: it has ended, or the tunnel is closed.", true);
    return;
  }
  if (!answer.ok) {
    say(await answer.text(), true);
    return;
  }
  const { ticket } = await answer.json();
  const address = new URL(`sessions/${encodeURIComponent(id)}/screen/${ticket}`, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  address.hash = "";
  document.getElementById("terminal").dataset.sessionWebsocketUrl = address.href;
  watch();
  await document.fonts.load("15px 'Roboto Mono'").catch(() => {});
  begin();
  document.querySelector(".xterm-helper-textarea")?.focus();
}

// The terminal reports its states as classes of the body.
function watch() {
  const body = document.body;
  const late = setTimeout(() => say("The session does not show its screen.", true), TOO_LONG);
  new MutationObserver(() => {
    if (body.classList.contains("-closed")) {
      clearTimeout(late);
      say("The screen was closed. The session continues, unless you ended it.", true);
    } else if (body.classList.contains("-first-byte")) {
      clearTimeout(late);
      document.getElementById("cover").hidden = true;
    }
  }).observe(body, { attributes: true, attributeFilter: ["class"] });
}

document.getElementById("again").addEventListener("click", () => location.reload());
open();
