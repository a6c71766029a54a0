// Look at the built site in Chromium, as `make look` does: each page at the width of a desktop and of a phone.
// It fails if a page is wider than its window, if code has to be scrolled on a desktop, or if a picture's
// text sticks out. --shots FOLDER [PAGE ...] takes screenshots instead, in a light and a dark theme.
import { mkdir, readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [site, option, folder, ...named] = process.argv.slice(2);
const WIDTHS = [1440, 390];
const files = await readdir(site);
const pages = files.filter((name) => name.endsWith(".html")).map((name) => name.slice(0, -5)).sort();
const pictures = (await readdir(join(site, "_images"))).filter((name) => name.endsWith(".svg")).sort();

const browser = await puppeteer.launch({
  args: chromium.args,
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
const tab = await browser.newPage();
const open = (file) => tab.goto(pathToFileURL(resolve(site, file)).href, { waitUntil: "load" });

// These three run in the page.
const width = () => [document.documentElement.scrollWidth, document.documentElement.clientWidth];
const longCode = () =>
  [...document.querySelectorAll("div[class*=highlight-]:not(.highlight-text) pre")]
    .filter((pre) => pre.scrollWidth > pre.clientWidth)
    .map((pre) => pre.innerText.split("\n").reduce((one, other) => (other.length > one.length ? other : one)));
const cutOff = () => {
  const outside = (inner, outer) =>
    inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
  const whole = document.documentElement.getBoundingClientRect();
  const boxes = [...document.querySelectorAll("rect")].map((each) => each.getBoundingClientRect());
  return [...document.querySelectorAll("text:not([clip-path] *)")]
    .filter((text) => {
      const place = text.getBoundingClientRect();
      const [x, y] = [place.left + 1, place.top + place.height / 2];
      const around = boxes
        .filter((box) => box.left < x && x < box.right && box.top < y && y < box.bottom)
        .sort((one, other) => one.width * one.height - other.width * other.height);
      return outside(place, whole) || (around.length > 0 && outside(place, around[0]));
    })
    .map((text) => text.textContent);
};

const faults = [];
if (option === "--shots") {
  await mkdir(folder, { recursive: true });
  for (const page of named.length ? named : ["index", "getting-started", "reading", "errors", "deploying"])
    for (const wide of WIDTHS)
      for (const theme of ["light", "dark"]) {
        await tab.setViewport({ width: wide, height: 900 });
        await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
        await open(`${page}.html`);
        await tab.screenshot({ path: join(folder, `${page}-${wide}-${theme}.png`), fullPage: true });
      }
} else {
  for (const wide of WIDTHS) {
    await tab.setViewport({ width: wide, height: 900 });
    for (const page of pages) {
      await open(`${page}.html`);
      const [has, fits] = await tab.evaluate(width);
      if (has > fits) faults.push(`${page}.html at ${wide} pixels is ${has} wide`);
      if (wide === WIDTHS[0])
        for (const line of await tab.evaluate(longCode)) faults.push(`${page}.html: code is cut off: ${line}`);
    }
  }
  for (const picture of pictures) {
    await open(`_images/${picture}`);
    for (const text of await tab.evaluate(cutOff)) faults.push(`${picture}: text sticks out: ${text}`);
  }
  console.log(`${pages.length} pages, ${pictures.length} pictures, ${faults.length} faults`);
}
await browser.close();
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;
