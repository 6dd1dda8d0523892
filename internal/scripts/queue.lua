-- Reads who waits for the key, the first in the queue first.
--
--     KEYS: key, queue
--
-- It returns each member, followed by its ticket.

return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'WITHSCORES')
