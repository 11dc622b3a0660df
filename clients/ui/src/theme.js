// Before the first paint: the theme and the text size that the person chose on this device.
(() => {
  try {
    const root = document.documentElement;
    const theme = localStorage.getItem("parley.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    const size = localStorage.getItem("parley.text");
    if (size) root.dataset.text = size;
  } catch {
    // A page without storage follows the system.
  }
})();
