"""What a consumer does with a delivery of a declared queue: from a decision to the commands for the broker.

queue_plan       all that a consumer needs to know about one queue; the rest is asked through it
moves            the moves that shapes choose from: requeue, copy to a wait queue, copy to the queue's end, park
message_origin   how a delivery came into its queue, and which of its headers can be trusted
no_retry         the commands of a queue with `retry: false`
"""
