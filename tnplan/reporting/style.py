"""The look of the HTML page: one style sheet, light or dark as the reader's system is."""

CSS = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --text: #1b1f24; --soft: #5a6470; --line: #dfe3e8; --paper: #ffffff; --ground: #f5f6f8;
  --blue: #0072b2; --vermilion: #d55e00; --green: #009e73;
  --purple: #b65f93; --orange: #e69f00; --grey: #7a828c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e9ed; --soft: #9aa4af; --line: #333a42; --paper: #1c2127; --ground: #13171b;
    --blue: #56b4e9; --vermilion: #f0833a; --green: #2fc79c;
    --purple: #dc9bc0; --orange: #f0b429; --grey: #8d97a2;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.55 var(--font); }
main { max-width: 1160px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: 27px; line-height: 1.25; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0 0 4px; }
p { margin: 0 0 12px; max-width: 76ch; }
.soft { color: var(--soft); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px;
  margin-top: 20px; }
details { margin-top: 20px; }
summary { cursor: pointer; font-size: 18px; font-weight: 600; padding: 8px 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-top: 24px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; }
.card .name { color: var(--soft); font-size: 13px; }
.card .value { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; margin-top: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 9px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
tr:last-child td { border-bottom: 0; }
td.left, th.left { text-align: left; }
td.wrap { white-space: normal; text-align: left; color: var(--soft); }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; margin-top: 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 5px 20px; margin: 10px 0 0;
  font-size: 14px; }
dt { color: var(--soft); }
dd { margin: 0; }
ul { margin: 10px 0 0; padding-left: 20px; }
li { margin-bottom: 5px; max-width: 84ch; }
sub { line-height: 0; }
"""
