// The button beside a Python session copies what was typed, without prompts and output.
for (const code of document.querySelectorAll(".highlight code")) {
  const lines = code.textContent.split("\n");
  if (!lines.some((line) => line.startsWith(">>>"))) continue;
  const typed = [];
  let typing = false;
  for (const line of lines) {
    typing = /^>>>( |$)/.test(line) || (typing && /^\.\.\.( |$)/.test(line));
    if (typing) typed.push(line.slice(4));
  }
  code.dataset.copy = typed.join("\n");
}
