// The scripted service of scripted.py, in node without any package: it answers as a message's body says.
const crypto = require("node:crypto");
const http = require("node:http");

const times = new Map();

function isSigned(header, body) {
  const parts = Object.fromEntries((header || "").split(",").map((part) => part.split("=", 2)));
  const right = crypto.createHmac("sha256", process.env.SECRET).update(`${parts.t}.`).update(body).digest();
  const given = Buffer.from(parts.v1 || "", "hex");
  return given.length === right.length && crypto.timingSafeEqual(given, right);
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    const id = request.headers["x-redrive-message-id"];
    const script = JSON.parse(body).script;
    const time = times.get(id) || 0;
    times.set(id, time + 1);
    const signed = isSigned(request.headers["x-redrive-signature"], body);
    console.log(JSON.stringify({ id, attempt: request.headers["x-redrive-attempt"], signed }));
    const word = script[Math.min(time, script.length - 1)];
    if (typeof word === "number") {
      response.writeHead(word, { location: "/elsewhere" }).end(word === 204 ? undefined : "why not");
    } else if (word === "drop") {
      request.socket.resetAndDestroy();
    } else if (word === "half") {
      response.writeHead(200, { "content-length": "100" }).write("half", () => request.socket.destroy());
    } else if (word !== "slow") {
      const [status, seconds] = word.split(" in ");
      response.writeHead(Number(status), { "retry-after": seconds }).end();
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
