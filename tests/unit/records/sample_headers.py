"""Headers as each framework writes them on a message it gives up, for the tests here and on real brokers.

Stacks are made up, in the forms of Python, Java and .NET.
"""

from typing import Any

JAVA_STACK = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener method 'place' threw\n"
    "\tat org.springframework.amqp.rabbit.listener.adapter.Invoker.invoke(Invoker.java:220)\n"
    "\tat java.base/java.lang.Thread.run(Thread.java:833)\n"
    "Caused by: com.acme.orders.PaymentTimeout: payment 4711 took 3000 ms\n"
    "\tat java.base/java.net.Socket.connect(Socket.java:10)\n"
    "\tat com.acme.orders.Payments$$FastClassBySpringCGLIB$$1a2b3c4d.pay(Payments.java:42)\n"
    "\tat com.acme.orders.Orders.place(Orders.java:17)\n"
    "\t... 12 more\n"
)
DOTNET_STACK = (
    "   at System.Net.Http.HttpClient.SendAsync(HttpRequestMessage request)\n"
    "   at Acme.Orders.PaymentClient.<Pay>d__5.MoveNext() in /src/Orders/PaymentClient.cs:line 42\n"
    "   at MassTransit.Middleware.ConsumerFilter.Send(ConsumeContext context)\n"
)

SPRING: dict[str, Any] = {
    "x-exception-message": "payment 4711 took 3000 ms",
    "x-exception-stacktrace": JAVA_STACK,
    "x-original-exchange": "shop",
    "x-original-routingKey": "order.placed",
    "__TypeId__": "com.acme.orders.OrderPlaced",
}
MASSTRANSIT: dict[str, Any] = {
    "MT-Reason": "fault",
    "MT-Fault-ExceptionType": "System.TimeoutException",
    "MT-Fault-Message": "payment 4711 took 3000 ms",
    "MT-Fault-StackTrace": DOTNET_STACK,
    "MT-Fault-Timestamp": "2026-11-01T12:00:00.1234567Z",
    "MT-Fault-InputAddress": "rabbitmq://localhost/shop/orders?durable=true",
    "MT-Fault-ConsumerType": "Acme.Orders.PlaceOrderConsumer",
    "MT-Fault-MessageType": "Acme.Contracts.PlaceOrder",
    "MT-Host-MachineName": "web-1",
}
NSERVICEBUS: dict[str, Any] = {
    "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
    "NServiceBus.ExceptionInfo.Message": "payment 4711 took 3000 ms",
    "NServiceBus.ExceptionInfo.StackTrace": "System.TimeoutException: payment 4711 took 3000 ms\n" + DOTNET_STACK,
    "NServiceBus.FailedQ": "orders@web-1",
    "NServiceBus.TimeOfFailure": "2026-11-01 12:00:00:123456 Z",
    "NServiceBus.EnclosedMessageTypes": "Acme.Contracts.PlaceOrder, Acme.Contracts, Version=1.0.0.0;Acme.ICommand",
}
WOLVERINE: dict[str, Any] = {
    "exception-type": "System.TimeoutException",
    "exception-message": "payment 4711 took 3000 ms",
    "exception-stack": DOTNET_STACK,
    "failed-at": "1793534400123",
    "attempts": "3",
    "message-type": "Acme.Contracts.PlaceOrder",
}
EVENT_BUS: dict[str, Any] = {
    "x-final-error": "connect to 10.0.0.7:443 refused",
    "x-final-status-code": 503,
    "x-final-retry-count": 10,
}
FAILED_AT_MS = 1_793_534_400_123
"""12:00:00.123 on 2026-11-01 UTC, the moment all of them tell."""
