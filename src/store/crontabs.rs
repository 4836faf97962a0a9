//! Stores the crontabs of users.

use crate::row::{from_json, to_json};
use crate::schema::crontabs;
use crate::{Store, StoreError};
use diesel::prelude::*;
use slotd_model::cron::{CronEntry, Crontab};

/// Replaces the crontab of a user. `None` removes it.
pub(super) fn put(
    conn: &mut SqliteConnection,
    uid: u32,
    crontab: Option<&Crontab>,
) -> Result<(), StoreError> {
    let failed = StoreError::sql("store a crontab");
    let Some(Crontab { text, entries }) = crontab else {
        let removed = diesel::delete(crontabs::table.find(i64::from(uid))).execute(conn);
        return removed.map(drop).map_err(failed);
    };
    let entries = to_json("crontabs", "entries", entries)?;
    diesel::replace_into(crontabs::table)
        .values((
            crontabs::uid.eq(i64::from(uid)),
            crontabs::text.eq(text),
            crontabs::entries.eq(entries),
        ))
        .execute(conn)
        .map_err(failed)?;
    Ok(())
}

impl Store {
    /// Returns all crontabs with the UIDs of their users. Logs an unreadable one, and returns it
    /// without its entries, so that its user can still read the text.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn crontabs(&mut self) -> Result<Vec<(u32, Crontab)>, StoreError> {
        let rows: Vec<(i64, Vec<u8>, String)> =
            crontabs::table.load(&mut self.conn).map_err(StoreError::sql("read the crontabs"))?;
        let crontabs = rows.into_iter().filter_map(|(uid, text, entries)| {
            let read: Result<Vec<CronEntry>, _> = from_json("crontabs", "entries", &entries);
            let entries = read.unwrap_or_else(|e| {
                log::error!("the jobs of user {uid}'s crontab do not recur: {e}");
                Vec::new()
            });
            Some((u32::try_from(uid).ok()?, Crontab { text, entries }))
        });
        Ok(crontabs.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, put as commit};
    use slotd_model::JobId;
    use slotd_model::change::Change;

    #[test]
    fn a_crontab_is_stored_byte_for_byte() {
        let place = Place::new();
        let entry = CronEntry { lines: (1, 3), job: JobId(7) };
        let crontab = |text: &[u8]| Crontab { text: text.to_vec(), entries: vec![entry] };
        let put = |uid, text: Option<&[u8]>| {
            let crontab = text.map(|text| Box::new(crontab(text)));
            commit(&mut place.store(), vec![Change::PutCrontab { uid, crontab }]);
        };
        put(1001, Some(b"old"));
        put(1001, Some(b"\0\xff\r\n"));
        put(u32::MAX, Some(b""));
        put(5, Some(b"gone"));
        put(5, None);
        put(6, None);
        let stored = place.store().crontabs().unwrap();
        assert_eq!(stored, [(1001, crontab(b"\0\xff\r\n")), (u32::MAX, crontab(b""))]);
    }

    #[test]
    fn the_text_of_a_crontab_survives_unreadable_entries() {
        let place = Place::new();
        let mut store = place.store();
        let row = (crontabs::uid.eq(3), crontabs::text.eq(&b"mine"[..]), crontabs::entries.eq("{"));
        diesel::insert_into(crontabs::table).values(row).execute(&mut store.conn).unwrap();
        let kept = Crontab { text: b"mine".to_vec(), entries: Vec::new() };
        assert_eq!(store.crontabs().unwrap(), [(3, kept)]);
    }
}
