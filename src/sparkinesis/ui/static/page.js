// The forms of an operator. An order is planned, shown, and carried out once it is confirmed.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  // The part of an address behind "#" is never sent to a server: only whoever has it may order.
  const token = location.hash.slice(1);
  at("operate").hidden = !token;
  at("read-only").hidden = Boolean(token);
  let plan = null;

  async function post(path, order) {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Sparkinesis-Token": token },
      body: JSON.stringify(order),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }

  function tell(text, isError = false) {
    at("done").textContent = text;
    at("done").className = isError ? "error" : "";
  }

  async function run(button, order) {
    button.disabled = true;
    tell("…");
    try {
      await order();
    } catch (error) {
      tell(error.message, true);
    } finally {
      button.disabled = false;
    }
  }

  function fill(parent, texts, tag) {
    parent.replaceChildren(...texts.map((text) => {
      const child = document.createElement(tag);
      child.textContent = text;
      return child;
    }));
  }

  function show(found) {
    plan = found.plan;
    tell("");
    at("question").textContent = found.question;
    at("confirm").textContent = found.button;
    fill(at("notes"), found.notes, "li");
    at("rows").replaceChildren(...found.rows.map((cells) => {
      const line = document.createElement("tr");
      fill(line, cells, "td");
      return line;
    }));
    at("plan").showModal();
    at("cancel").focus();
  }

  function onSubmit(form, order) {
    at(form).addEventListener("submit", (event) => {
      event.preventDefault();
      run(event.submitter, async () => show(await post("/plan", order())));
    });
  }
  onSubmit("reset", () => ({ reset: at("to").value }));
  onSubmit("release", () => ({ release: at("lease").value }));
  at("cancel").addEventListener("click", () => at("plan").close());
  at("confirm").addEventListener("click", (event) => {
    at("plan").close();
    run(event.target, async () => tell((await post("/confirm", { plan })).done));
  });
  window.chooseLease = (key) => { at("lease").value = key; };
})();
