"""The page of the report: one HTML file with all it needs inside, good on a desk, a telephone and
paper, by day and by night."""

from __future__ import annotations

#: Filled by str.replace, since CSS and JavaScript are full of braces and dollars.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>@@TITLE@@</title>
<style>
:root { --ink: #1b2129; --soft: #5a6470; --paper: #ffffff; --card: #f5f7f9; --line: #dde2e7;
  --good: #2b7a53; --bad: #b03246; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaee; --soft: #9aa5b1; --paper: #14171a; --card: #1d2126; --line: #31373e;
    --good: #6cc59b; --bad: #f0798a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  -webkit-text-size-adjust: 100%; }
main { max-width: 980px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 1.2rem; margin: 48px 0 6px; }
h3 { font-size: 0.95rem; margin: 18px 0 2px; font-weight: 600; }
p { margin: 6px 0 12px; max-width: 70ch; }
.lead { font-size: 1.1rem; }
.soft, figcaption, footer { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: 10px; margin: 20px 0 0; padding: 0; }
.facts div { background: var(--card); border-radius: 10px; padding: 10px 16px; flex: 1 1 150px; }
.facts b { display: block; font-size: 1.45rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.facts span { font-size: 0.85rem; color: var(--soft); }
.basis { border-left: 3px solid var(--line); padding: 2px 0 2px 14px; margin: 18px 0; }
.basis p { margin: 2px 0; font-size: 0.92rem; }
figure { margin: 10px 0 0; }
figcaption { font-size: 0.92rem; margin-top: 6px; max-width: 72ch; }
.chart { width: 100%; min-height: 40px; }
.chart svg { display: block; max-width: 100%; }
.machine { overflow-x: auto; }
.machine svg { max-width: 100%; height: auto; display: block; margin: 8px auto 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 10px 0; font-size: 0.92rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; color: var(--soft); }
th:first-child, td:first-child, .words { text-align: left; }
.words { white-space: normal; min-width: 11em; }
tr.ours td { font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); }
.missing { background: var(--card); border-radius: 10px; padding: 12px 16px; color: var(--soft); }
footer { margin-top: 56px; font-size: 0.85rem; border-top: 1px solid var(--line);
  padding-top: 12px; overflow-wrap: anywhere; }
@media (max-width: 560px) {
  main { padding: 22px 14px 40px; } h1 { font-size: 1.4rem; } h2 { margin-top: 36px; }
  th, td { padding: 6px 7px; font-size: 0.86rem; } .what { display: none; }
  th { white-space: normal; vertical-align: bottom; }
  .facts div { flex-basis: 130px; padding: 8px 12px; } .facts b { font-size: 1.2rem; }
}
@media print { main { max-width: none; } figure { break-inside: avoid; } }
</style>
</head>
<body>
<main>
@@BODY@@
</main>
<script>@@LIBRARIES@@</script>
<script>
"use strict";
const figures = @@FIGURES@@;
const options = { renderer: "svg", actions: false, ast: false,
  tooltip: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" } };
for (const [id, figure] of Object.entries(figures)) {
  vegaEmbed("#" + id, figure, options);
}
</script>
</body>
</html>
"""
