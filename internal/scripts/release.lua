-- Deletes the key if it holds the value. Where others queue, it hands the key on instead: it
-- reserves the key for the first of them that hears of it.
--
--     KEYS: key [queue]   ARGV: value [, window ms [, member [, ticket, keep ms]]]
--
-- It returns 1 if it deleted the key and 2 if it handed it on. It returns 0 if there was no key,
-- and a negative number if the key is somebody else's: -1 if that never expires, -2-ms if it
-- expires in ms milliseconds. A key that is reserved for the member is handed on in the same way;
-- the reply is 0 then. The member leaves the queue. With a ticket it takes its place again
-- instead, before the key is handed on.
--
-- A member is a channel of 39 bytes and a number, which is what it hears there. A reservation is
-- "~" and the member, and lasts for the window. A member that does not hear is dead, and passed
-- over. A user who may not touch the queue deletes the key. A member loses its place on a node that
-- cannot keep it, because it is out of memory, or has something else under the queue's key. The key
-- is handed on or deleted nevertheless.
--
-- When a member leaves and hands the key on, the bid of the first in the queue is taken up if it is
-- one for this key: that one has the key at once, and hears the key and the number of its bid.
-- Whoever is the first in the queue then hears its own number and "+": it may bid. The key of the
-- bid is that of the queue, with another end. It is not among KEYS: a user who may not touch it
-- could release nothing. A member's own bid of the value is over.
--
-- Most releases find no queue, and are over before what others need is made: that saves a server
-- 4 % of a SET and a release. hears.lua and handon.lua are sent behind.

local call, pcall = redis.call, redis.pcall
local key, queue, member = KEYS[1], KEYS[2], ARGV[3]
local v = call('GET', key)
local mine = v == ARGV[1]
if mine and not member and (not queue or pcall('PTTL', queue) == -2) then
	return call('DEL', key)
end
