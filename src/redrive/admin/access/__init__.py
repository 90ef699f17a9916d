"""Who a caller is (`caller`), what they may do (`authorization`), what they see of messages (`caller_view`).

Around that: whose dead-letter queues are whose (`dlq_owners`), the first token (`bootstrap_token`), where a request
comes from (`request_origin`), wrong tokens slowed down (`brute_force`), and refusals in the audit (`access_audit`).
Authentication itself is middleware. A route takes its caller as a parameter, and the type says which role it requires:

    async def resolve(caller: OperatorCaller, view: CurrentView, …)
"""
