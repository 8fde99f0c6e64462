"""A page that does what ours do, under the policy ours have, to test the tools with."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,">
<script src="/script.js" defer></script></head>
<body><main><h1>A page</h1>
<label>A slider <input id="slider" type="range" min="0" max="100" value="0"></label>
<p id="shown" role="status"></p>
<ul lang="und"><li>نۆۋەتتىكى تىل</li><li>当前的语言，日本語、한국어</li><li>भाषा ภาษา ভাষা தமிழ்</li>
<li>ភាសា ಭಾಷೆ ഭാഷ భాష</li></ul>
</main></body></html>
"""

SCRIPT = """
const main = document.querySelector("main");
document.querySelector("#slider").addEventListener("input", (event) => setTimeout(() => {
  document.querySelector("#shown").textContent = event.target.value;
  main.dataset.answered = Number(main.dataset.answered || 0) + 1;
}, 50));
setTimeout(() => { document.documentElement.dataset.ready = "1"; }, 100);
"""

FAULTY = """<!doctype html>
<html><head><title>Faulty</title><link rel="icon" href="data:,"></head>
<body><p style="color: #bbb">Faint</p><input></body></html>
"""

ANSWERS = {
    "/": ("text/html", PAGE),
    "/script.js": ("text/javascript", SCRIPT),
    "/faulty": ("text/html", FAULTY),
}


class Handler(BaseHTTPRequestHandler):
    """Answers what is above."""

    def do_GET(self) -> None:
        kind, text = ANSWERS.get(self.path, ("text/plain", ""))
        body = text.encode()
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"Answering at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
