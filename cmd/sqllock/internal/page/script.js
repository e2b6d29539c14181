// Looks again and again, while the page is seen, and shows the answer in the place of the last one.
(() => {
  const every = Number(document.documentElement.dataset.every);
  const gone = document.getElementById("gone");
  if (!every) return;

  async function look() {
    const old = document.getElementById("live");
    const selection = getSelection();
    const selects = !selection.isCollapsed && old.contains(selection.anchorNode);
    if (document.hidden || selects) return;

    try {
      const answer = await fetch(location.href);
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const live = parsed.getElementById("live");
      if (!live) throw new Error("not a page of sqllock");
      const focused = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
      old.replaceWith(live);
      if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      gone.hidden = true;
    } catch {
      gone.hidden = false;
      old.classList.add("stale");
    }
  }

  async function again() {
    await look();
    setTimeout(again, every);
  }

  setTimeout(again, every);
  document.addEventListener("visibilitychange", look);
})();
