"""Planted bugs in applications that consume a queue."""

from __future__ import annotations

from tests.simulation.subject import planted

BUGS = planted("""
an aggregate is acknowledged with its first user record | acknowledged_after_handling
    queue.handling:Handling.calls_for
    - held.parts = len(found)
    + held.parts = 1
a record is acknowledged when its handler begins | acknowledged_after_handling
    queue.handling:Handling._begin
    - found.append(record)
    + found.append(record)
    + settle(record, ACKNOWLEDGE)
the records that a batch names as failed are acknowledged | acknowledged_after_handling
    queue.handling:Handling._named
    + return set()
a coroutine that was cancelled has failed | acknowledged_after_handling
    queue.handling:Handling._settle
    - if isinstance(error, CancelledError) and any(held.is_let_go for held in call.holds):
    + if False:
a record with a part that failed is acknowledged | acknowledged_after_handling
    queue.holds:_worse
    + return other if one.visible_after is not None else one
a hold that has ended is acknowledged | acknowledged_in_time
    queue.holds:HoldKeeper._begin
    - held = [one for one in entries if now < one.until]
    + held = list(entries)
    - if now >= one.until:
    + if False:
a record that fails is given up | nothing_is_lost
    queue.hold_rules:verdict
    - return Verdict(Settlement(retry_seconds(policy, receive_count, uniform)))
    + return Verdict(ACKNOWLEDGE)
a receive that fails is the last one | nothing_is_lost
    queue.receiving:Receiving._may_go_on
    + was(self, error, failures)
    + return False
the places of a receive that fails stay taken | nothing_is_lost
    queue.receiving:Receiving._poll
    - self._places.received(asked, [])
    + pass
only the first place that is free is told | nothing_is_lost
    queue.receiving:Places.free
    - elif free and (not before or free >= min(MOST_ENTRIES, self._most)):
    + elif free == 1 or free >= min(MOST_ENTRIES, self._most):
a coroutine that has ended keeps its place | nothing_is_lost
    queue.handling:_Turns.ended
    - self._free += 1
    + pass
a hold lasts as long as the queue says by now | one_at_a_time
    queue.receiving:Receiving.__init__
    - self._visibility = visibility
    + self._visibility = None
a record that its handler has released counts as held | one_at_a_time
    queue.holds:HoldKeeper.is_held
    + return self._clock() < held.until and not held.is_let_go
a hold counts from its answer | one_at_a_time
    queue.receiving:Receiving._poll
    - self._deliver(records, sent_at)
    + self._deliver(records, settings.timing.clock())
an extension counts from its answer | one_at_a_time
    queue.holds:HoldKeeper._apply
    - held.until = sent_at + self._terms.visibility
    + held.until = now + self._terms.visibility
a call that has failed whole is taken for a success | one_at_a_time
    queue.lanes:Told.meaning
    - return Meaning.AGAIN
    + return Meaning.DONE
a hold that has ended is noticed late | one_at_a_time
    queue.holds:HoldKeeper.is_held
    + return not held.is_let_go
a record that has expired is handled | one_at_a_time
    queue.handling:Handling._begin
    - if not record.is_held:
    + if held.is_gone:
a return overtakes an extension | returned_in_order
    queue.holds:HoldKeeper._settle
    - if held.is_extending and held.is_returned:
    + if False:
a return waits for an extension for ever | extended_or_let_go
    queue.holds:HoldKeeper._apply
    - self._lanes.give_back.add(held, now)  # it has waited for this answer
    + pass
holds are extended in the last moment | extended_or_let_go
    queue.hold_rules:extension_due
    + return sent_at + 0.999 * visibility
a receive waits for longer than its holds last | extended_or_let_go
    queue.hold_rules:poll_seconds
    + return wait_time
a hold is extended once | extended_or_let_go
    queue.holds:HoldKeeper._apply
    - self._watch(held, sent_at)
    + pass
an extension that has failed is not asked for again | extended_or_let_go
    queue.holds:HoldKeeper._apply
    - lane.add(held, now)
    + pass
a call that has ended counts as under way | extended_or_let_go
    queue.lanes:Lane.end
    - self._under_way -= 1
    + pass
handlers are not told of a lost hold | extended_or_let_go
    queue.holds:HoldKeeper._lose
    - held.let_go()
    + pass
an acknowledged record is counted as lost | extended_or_let_go | rare
    queue.holds:HoldKeeper._apply
    - if held.asked and means is Meaning.LOST:
    + if False:
lost holds are not counted | extended_or_let_go
    queue.holds:HoldKeeper._lose
    - self._settings.publish(HoldLost(*self._settings.of, held.record_id, where))
    + pass
each receive asks for ten records | no_receive_without_room
    queue.receiving:Places.reserve
    - min(MOST_ENTRIES, self._free())
    + MOST_ENTRIES
two receives take the same place | no_receive_without_room
    queue.receiving:Places.reserve
    - min(MOST_ENTRIES, self._free())
    + max(1, min(MOST_ENTRIES, self._free()))
the user records of an aggregate take one place | no_receive_without_room
    queue.receiving:Places.unpacked
    + pass
records wait for slow handlers | no_receive_without_room
    queue.hold_rules:spare_places
    + return MOST_ENTRIES
a shutdown waits for handlers for ever | shutdown_is_bounded
    queue.worker:_Ending.seconds_left
    + return float("inf")
a shutdown that is forced releases nothing | shutdown_is_bounded
    queue.holds:HoldKeeper.release_all
    + pass
what no handler has begun is not released | shutdown_is_bounded
    queue.handling:Handling.release_left
    + pass
the last acknowledgements are not waited for | shutdown_is_bounded
    queue.holds:HoldKeeper._is_done
    + return self._is_closing
""")
