// A service that takes orders by HTTP, in node without any package. What it answers is what becomes of the message:
// 2xx done, 422 to the dead letters, 503 again after the queue's next delay.
//
//   SECRET=$(cat secret.txt) PORT=3000 node server.js
const crypto = require("node:crypto");
const http = require("node:http");

const SECRET = process.env.SECRET || "";
const TOLERANCE_S = 300;
const placed = new Set(); // a database in earnest: the same message may come twice

// x-redrive-signature: t=1767268800,v1=5257a869…  (several v1 while a secret is being changed)
function isSigned(header, body) {
  const parts = (header || "").split(",").map((part) => part.split("=", 2));
  const time = (parts.find(([name]) => name === "t") || [])[1];
  if (!/^\d{1,12}$/.test(time || "") || Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE_S) return false;
  const right = crypto.createHmac("sha256", SECRET).update(`${time}.`).update(body).digest();
  return parts.some(([name, value]) => {
    const given = Buffer.from(name === "v1" ? value || "" : "", "hex");
    return given.length === right.length && crypto.timingSafeEqual(given, right);
  });
}

function placeOrder(id, order) {
  if (!Number.isInteger(order.quantity) || order.quantity < 1) return [422, "quantity must be a whole number"];
  if (order.sku === "SOLD-OUT") return [503, "the warehouse does not answer", { "retry-after": "60" }];
  placed.add(id);
  return [204, ""];
}

function answer(request, body) {
  if (SECRET && !isSigned(request.headers["x-redrive-signature"], body)) return [401, "not signed by us"];
  const id = request.headers["x-redrive-message-id"];
  if (placed.has(id)) return [204, ""]; // done already: say so, or it comes again
  let order;
  try {
    order = JSON.parse(body);
  } catch {
    return [400, "this is not JSON"];
  }
  return placeOrder(id, order);
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const [status, text, headers] = answer(request, Buffer.concat(chunks));
    const { "x-redrive-message-id": id, "x-redrive-attempt": attempt } = request.headers;
    console.log(`${id} attempt ${attempt}: ${status} ${text}`);
    response.writeHead(status, { "content-type": "text/plain", ...headers }).end(text);
  });
});
server.listen(Number(process.env.PORT || 3000), "127.0.0.1", () => {
  console.log(`orders are taken at http://127.0.0.1:${server.address().port}/orders`);
});
