// The button beside a Python session copies what was typed, without prompts and output.
for (const code of document.querySelectorAll(".highlight code")) {
  const lines = code.textContent.split("\n");
  if (!lines.some((line) => line.startsWith(">>>"))) continue;
  const typed = [];
  let typing = false, inBlock = false;
  for (const line of lines) {
    const begins = /^>>>( |$)/.test(line);
    const goesOn = typing && /^\.\.\.( |$)/.test(line);
    typing = begins || goesOn;
    if (!typing) continue;
    if (begins && inBlock) typed.push(""); // an interpreter ends a block at an empty line
    typed.push(line.slice(4));
    inBlock = goesOn;
  }
  code.dataset.copy = typed.join("\n");
}
